{{/* The container, in both modes. */}}

{{- define "headgate.securityContext" -}}
{{- toYaml .Values.pod.containerSecurityContext -}}
{{- end -}}

{{/* Asks whether the process serves. */}}
{{- define "headgate.probe" -}}
{{- if include "headgate.isSidecar" . -}}
exec:
  command: [/headgate, health, --addr, "unix:{{ .Values.sidecar.socket }}", --timeout, 3s]
{{- else if include "headgate.httpIsOpen" . -}}
httpGet:
  path: /healthcheck
  port: http
{{- else -}}
exec:
  command: [/headgate, health, --addr, "http://127.0.0.1:8080", --timeout, 3s]
{{- end -}}
{{- end -}}

{{/* Asks whether Envoy can be served by this pod: rules and policies are there, the certificate can be used. It does not
     ask whether the store answers: a dead store must take no pod out of service, because policies answer meanwhile. */}}
{{- define "headgate.readiness" -}}
{{- if include "headgate.httpIsOpen" . -}}
httpGet:
  path: /readyz?own
  port: http
{{- else -}}
exec:
  command: [/headgate, health, --addr, "http://127.0.0.1:8080", --own, --timeout, 3s]
{{- end -}}
{{- end -}}

{{- define "headgate.container" -}}
name: headgate
image: {{ include "headgate.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args: [serve, --config, /etc/headgate/settings/settings.yaml]
{{- with include "headgate.env" . | trim }}
env:
  {{- . | nindent 2 }}
{{- end }}
{{- if include "headgate.isSidecar" . }}
{{- if or .Values.sidecar.metricsPort .Values.admin.port }}
ports:
  {{- if .Values.sidecar.metricsPort }}
  - name: hg-metrics
    containerPort: {{ .Values.sidecar.metricsPort }}
  {{- end }}
  {{- if .Values.admin.port }}
  - name: hg-admin
    containerPort: {{ .Values.admin.port }}
  {{- end }}
{{- end }}
{{- else }}
ports:
  - name: grpc
    containerPort: 8081
  - name: grpc-services
    containerPort: 8082
  {{- if include "headgate.httpIsOpen" . }}
  - name: http
    containerPort: 8080
  {{- end }}
  {{- if .Values.admin.port }}
  - name: admin
    containerPort: {{ .Values.admin.port }}
  {{- end }}
  - name: metrics
    containerPort: 6070
{{- end }}
startupProbe:
  {{- include "headgate.probe" . | nindent 2 }}
  periodSeconds: 1
  timeoutSeconds: 5
  failureThreshold: 60
{{- if not (include "headgate.isSidecar" .) }}
readinessProbe:
  {{- include "headgate.readiness" . | nindent 2 }}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 2
{{- end }}
livenessProbe:
  {{- include "headgate.probe" . | nindent 2 }}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
resources:
  {{- toYaml (ternary .Values.sidecar.resources .Values.resources (eq .Values.mode "sidecar")) | nindent 2 }}
securityContext:
  {{- include "headgate.securityContext" . | nindent 2 }}
volumeMounts:
  {{- include "headgate.volumeMounts" . | nindent 2 }}
{{- end -}}

{{/* A native sidecar: it starts before the containers of the application and ends after them. It has no
     readinessProbe: a limiter that is ill takes no application out of service, Envoy's failure mode decides. */}}
{{- define "headgate.sidecarContainer" -}}
{{ include "headgate.container" . }}
restartPolicy: Always
{{- end -}}
