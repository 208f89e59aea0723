{{/* Volumes, and where they are mounted. Each ConfigMap of rules has a volume of its own: in one
     volume of several, a key would silently hide an equal one. Never a subPath: it is not updated. */}}

{{- define "headgate.rulesName" -}}{{ include "headgate.fullname" . }}-rules{{- end -}}
{{- define "headgate.candidateName" -}}{{ include "headgate.fullname" . }}-candidate{{- end -}}
{{- define "headgate.settingsName" -}}{{ include "headgate.fullname" . }}-settings{{- end -}}

{{/* The ConfigMaps of others, each with its path, and the domains that it may have if there is a list of them. */}}
{{- define "headgate.configMaps" -}}
{{- $all := list -}}
{{- range .Values.rules.configMaps -}}
{{- if kindIs "string" . -}}
{{- $all = append $all (dict "name" . "path" (printf "/etc/headgate/rules/%s" .)) -}}
{{- else -}}
{{- $path := printf "/etc/headgate/owned/%s" .name -}}
{{- $all = append $all (dict "name" .name "path" $path "domains" .domains) -}}
{{- end -}}
{{- end -}}
{{- toJson $all -}}
{{- end -}}

{{/* The paths of all rules, for --rules: where a ConfigMap has a list of domains, it is a path of its own. */}}
{{- define "headgate.rulesPaths" -}}
{{- $paths := list -}}
{{- $rest := not (empty .files) -}}
{{- range .configMaps -}}
{{- if .domains -}}
{{- $paths = append $paths (printf "%s=%s" .path (join "," .domains)) -}}
{{- else -}}
{{- $rest = true -}}
{{- end -}}
{{- end -}}
{{- if $rest }}{{ $paths = prepend $paths "/etc/headgate/rules" }}{{ end -}}
{{- toJson $paths -}}
{{- end -}}

{{/* hg- in names keeps them apart from those of pods that headgate is put into. */}}
{{- define "headgate.volumes" -}}
- name: hg-settings
  configMap:
    name: {{ include "headgate.settingsName" . }}
{{- if .Values.rules.files }}
- name: hg-rules
  configMap:
    name: {{ include "headgate.rulesName" . }}
{{- end }}
{{- if .Values.rules.candidate }}
- name: hg-candidate
  configMap:
    name: {{ include "headgate.candidateName" . }}
{{- end }}
{{- range $i, $c := include "headgate.configMaps" . | fromJsonArray }}
- name: hg-rules-{{ $i }}
  configMap:
    name: {{ $c.name }}
    optional: true
{{- end }}
{{- with .Values.xds.existingSecret }}
- name: hg-xds
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- if .Values.tls.csiDriver }}
- name: hg-tls
  csi:
    driver: {{ .Values.tls.csiDriver }}
    readOnly: true
{{- else if include "headgate.hasTLS" . }}
- name: hg-tls
  secret:
    secretName: {{ default (printf "%s-tls" (include "headgate.fullname" .)) .Values.tls.existingSecret }}
    defaultMode: 0440
{{- end }}
{{- if and (include "headgate.isSidecar" .) (hasPrefix "/" .Values.sidecar.socket) }}
- name: hg-socket
  emptyDir:
    medium: Memory
    sizeLimit: 1Mi
{{- end }}
{{- with .Values.pod.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "headgate.volumeMounts" -}}
- name: hg-settings
  mountPath: /etc/headgate/settings
  readOnly: true
{{- if .Values.rules.files }}
- name: hg-rules
  mountPath: /etc/headgate/rules/{{ include "headgate.rulesName" . }}
  readOnly: true
{{- end }}
{{- if .Values.rules.candidate }}
- name: hg-candidate
  mountPath: /etc/headgate/candidate
  readOnly: true
{{- end }}
{{- range $i, $c := include "headgate.configMaps" . | fromJsonArray }}
- name: hg-rules-{{ $i }}
  mountPath: {{ $c.path }}
  readOnly: true
{{- end }}
{{- if .Values.xds.existingSecret }}
- name: hg-xds
  mountPath: /etc/headgate/xds
  readOnly: true
{{- end }}
{{- if include "headgate.hasTLS" . }}
- name: hg-tls
  mountPath: /etc/headgate/tls
  readOnly: true
{{- end }}
{{- if and (include "headgate.isSidecar" .) (hasPrefix "/" .Values.sidecar.socket) }}
- name: hg-socket
  mountPath: {{ dir .Values.sidecar.socket }}
{{- end }}
{{- with .Values.pod.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}
