{{/* What pods of hooks have in common with each other. */}}

{{- define "headgate.hookPod" -}}
restartPolicy: Never
enableServiceLinks: false
automountServiceAccountToken: false
securityContext:
  {{- toYaml (omit .Values.pod.securityContext "fsGroup") | nindent 2 }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "headgate.hookContainer" -}}
image: {{ include "headgate.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
resources:
  requests:
    cpu: 10m
    memory: 32Mi
  limits:
    memory: {{ .memory }}
securityContext:
  {{- include "headgate.securityContext" . | nindent 2 }}
{{- end -}}

{{/* The ConfigMaps of others whose rules are checked. Where files with errors are skipped, they hold up no release. */}}
{{- define "headgate.checkedConfigMaps" -}}
{{- ternary (list) (include "headgate.configMaps" . | fromJsonArray) (eq "skip" (dig "rules-errors" "" (.Values.config | default dict))) | toJson -}}
{{- end -}}

{{/* Whether a Job checks the rules: if there are some, and all of what has to be read as one whole. */}}
{{- define "headgate.checksRules" -}}
{{- $others := include "headgate.checkedConfigMaps" . | fromJsonArray -}}
{{- $whole := or (not .Values.rules.mergeDomains) (eq (len $others) (len .Values.rules.configMaps)) -}}
{{- if and .Values.rules.check (or .Values.rules.files $others) $whole }}true{{ end -}}
{{- end -}}

{{/* A descriptor that the rules of the release limit, as `headgate ask` takes it: the first rule with a limit. */}}
{{- define "headgate.ownDescriptor" -}}
{{- range $i, $rule := .descriptors -}}
{{- $entry := printf "%s=%s" (toString $rule.key) (toString (default "helm-test" $rule.value)) | replace "," "\\," -}}
{{- $all := append $.entries $entry -}}
{{- if $i -}}
{{- else if or (dig "rate_limit" "requests_per_unit" nil $rule) $rule.limits -}}
{{- join "," $all -}}
{{- else if $rule.descriptors -}}
{{- include "headgate.ownDescriptor" (dict "descriptors" $rule.descriptors "entries" $all) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What `helm test` asks: a domain and a descriptor of the first file of rules whose first rule has a limit. */}}
{{- define "headgate.ownQuestion" -}}
{{- $found := "" -}}
{{- range $name, $text := .Values.rules.files -}}
{{- $file := fromYaml $text -}}
{{- if and (not $found) $file.domain -}}
{{- with include "headgate.ownDescriptor" (dict "descriptors" ($file.descriptors | default list) "entries" list) -}}
{{- $found = toJson (list $file.domain .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $found -}}
{{- end -}}
