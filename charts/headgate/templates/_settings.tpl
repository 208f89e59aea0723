{{/* Settings of `headgate serve`: a file, and the environment for secrets. */}}

{{- define "headgate.settings" -}}
{{- $s := dict -}}
{{- if .Values.xds.server -}}
{{- $_ := set $s "xds" .Values.xds.server -}}
{{- if .Values.xds.existingSecret -}}
{{- $_ := set $s "xds-tls" true -}}
{{- $_ := set $s "xds-tls-cert" "/etc/headgate/xds/tls.crt" -}}
{{- $_ := set $s "xds-tls-key" "/etc/headgate/xds/tls.key" -}}
{{- $_ := set $s "xds-tls-ca" "/etc/headgate/xds/ca.crt" -}}
{{- end -}}
{{- else -}}
{{- $paths := include "headgate.rulesPaths" (dict "files" .Values.rules.files "configMaps" (include "headgate.configMaps" . | fromJsonArray)) | fromJsonArray -}}
{{- $_ := set $s "rules" (ternary (first $paths) $paths (eq 1 (len $paths))) -}}
{{- end -}}
{{- if .Values.rules.candidate }}{{ $_ := set $s "candidate" "/etc/headgate/candidate" }}{{ end -}}
{{- if .Values.admin.port }}{{ $_ := set $s "admin" (printf ":%d" (int .Values.admin.port)) }}{{ end -}}
{{- $_ := set $s "drain-delay" (printf "%ss" (include "headgate.drainDelay" .)) -}}
{{- $_ := set $s "drain-timeout" (printf "%ss" (include "headgate.drainTimeout" .)) -}}
{{- if .Values.rules.mergeDomains }}{{ $_ := set $s "merge-domains" true }}{{ end -}}
{{- if not .Values.backend.existingSecret }}{{ $_ := set $s "backend" .Values.backend.url }}{{ end -}}
{{- if include "headgate.isSidecar" . -}}
{{- $_ := set $s "grpc" (printf "unix:%s" .Values.sidecar.socket) -}}
{{- $_ := set $s "services" (printf "unix:%s-services" .Values.sidecar.socket) -}}
{{- /* With the umask's mode Envoy, another user, could not connect. */ -}}
{{- if hasPrefix "/" .Values.sidecar.socket }}{{ $_ := set $s "socket-mode" "0666" }}{{ end -}}
{{- $_ := set $s "http" (ternary (printf "127.0.0.1:%d" (int .Values.sidecar.httpPort)) "" (gt (int .Values.sidecar.httpPort) 0)) -}}
{{- $_ := set $s "debug" "" -}}
{{- if .Values.sidecar.metricsPort }}{{ $_ := set $s "metrics" (printf ":%d" (int .Values.sidecar.metricsPort)) }}{{ end -}}
{{- $_ := set $s "lease-ttl" .Values.sidecar.leaseTTL -}}
{{- else -}}
{{- $_ := set $s "grpc" ":8081" -}}
{{- $_ := set $s "services" ":8082" -}}
{{- $_ := set $s "http" (ternary ":8080" "127.0.0.1:8080" (include "headgate.httpIsOpen" . | eq "true")) -}}
{{- $_ := set $s "metrics" ":6070" -}}
{{- $_ := set $s "debug" "127.0.0.1:6071" -}}
{{- $_ := set $s "replicas" (include "headgate.mostReplicas" . | int) -}}
{{- if include "headgate.hasTLS" . -}}
{{- $_ := set $s "grpc-tls-cert" "/etc/headgate/tls/tls.crt" -}}
{{- $_ := set $s "grpc-tls-key" "/etc/headgate/tls/tls.key" -}}
{{- if .Values.tls.clientCA -}}
{{- $_ := set $s "grpc-client-ca" "/etc/headgate/tls/ca.crt" -}}
{{- with .Values.tls.clientNames }}{{ $_ := set $s "grpc-client-san" . }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml (merge $s .Values.config) -}}
{{- end -}}

{{- define "headgate.secretEnv" -}}
- name: {{ .name }}
  valueFrom:
    secretKeyRef:
      name: {{ .from.existingSecret }}
      key: {{ .from.key }}
{{- end -}}

{{- define "headgate.env" -}}
{{- $resources := ternary .Values.sidecar.resources .Values.resources (eq .Values.mode "sidecar") -}}
{{- with include "headgate.goMemLimit" $resources }}
- name: GOMEMLIMIT
  value: {{ . | quote }}
{{- end }}
{{- range $name, $from := dict "HEADGATE_BACKEND" .Values.backend "HEADGATE_LEASE_SECRET" .Values.leaseSecret "HEADGATE_SLOTS" .Values.slots "HEADGATE_POLICIES" .Values.policies "HEADGATE_ADMIN_TOKEN" .Values.admin }}
{{- if $from.existingSecret }}
{{ include "headgate.secretEnv" (dict "name" $name "from" $from) }}
{{- end }}
{{- end }}
{{- with .Values.pod.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}
