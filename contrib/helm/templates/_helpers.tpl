{{- define "nsqd-py.image" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag }}"
{{- with .Values.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- end }}
{{- define "nsqd-py.peers" -}}
- podSelector: {}
{{- with .Values.networkPolicy.from }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* The volumes of a pod: the Secret of the values, and more. The argument is a part of the values. */ -}}
{{- define "nsqd-py.volumes" -}}
{{- with .existingSecret }}
- name: secret
  secret: {secretName: {{ . | quote }}, defaultMode: 0440}
{{- end }}
{{- with .extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "nsqd-py.mounts" -}}
{{- if .existingSecret }}
- {name: secret, mountPath: /etc/nsq/secret, readOnly: true}
{{- end }}
{{- with .extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}
