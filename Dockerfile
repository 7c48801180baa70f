# The servers and tools of nsqd-py. compose.yaml starts all three; the command says which one a container runs.
#   docker build --tag nsqd-py .
# nsqadmin's page in few files, which a browser loads sooner.
FROM node:22-slim AS page
COPY contrib/page /src/contrib/page
COPY nsqadmin_py/static /src/nsqadmin_py/static
RUN npm install --prefix /src/contrib/page --no-audit --no-fund && node /src/contrib/page/build.mjs /page

FROM python:3.13-slim AS build
COPY . /src
COPY --from=page /page /page
RUN python -m venv /opt/nsqd && NSQADMIN_PAGE=/page /opt/nsqd/bin/pip install --no-cache-dir "/src[all]"

FROM python:3.13-slim
COPY --from=build /opt/nsqd /opt/nsqd
RUN useradd --system --uid 10001 --no-create-home --home-dir /data nsq && install --directory --owner=nsq /data
ENV PATH=/opt/nsqd/bin:$PATH
USER 10001
WORKDIR /data
VOLUME /data
# nsqd 4150 (TCP) and 4151 (HTTP), nsqlookupd 4160 and 4161, nsqadmin 4171
EXPOSE 4150 4151 4160 4161 4171
# SIGTERM stops each server cleanly.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s \
    CMD ["python", "-c", "import urllib.request; words = open('/proc/1/cmdline').read().split('\\0'); \
names = [word.rpartition('/')[2] for word in words]; \
port = 4161 if 'nsqlookupd-py' in names else 4171 if 'nsqadmin-py' in names else 4151; \
urllib.request.urlopen(f'http://127.0.0.1:{port}/ping', timeout=2)"]
CMD ["nsqd-py", "--data-path=/data"]
