{{/* What follows from values. Each gives "true" or nothing, or a number. */}}

{{- define "headgate.isSidecar" -}}
{{- if eq .Values.mode "sidecar" }}true{{ end -}}
{{- end -}}

{{/* Counters are in the memory of each process. */}}
{{- define "headgate.inMemory" -}}
{{- if and (not .Values.backend.existingSecret) (hasPrefix "memory:" .Values.backend.url) }}true{{ end -}}
{{- end -}}

{{- define "headgate.hasTLS" -}}
{{- if or .Values.tls.existingSecret .Values.tls.certManager.issuerRef .Values.tls.csiDriver }}true{{ end -}}
{{- end -}}

{{/* HTTP is asked by others than this process: not where client certificates guard the gRPC ports, as /json has none. */}}
{{- define "headgate.httpIsOpen" -}}
{{- if not .Values.tls.clientCA }}true{{ end -}}
{{- end -}}

{{- define "headgate.replicas" -}}
{{- if kindIs "invalid" .Values.replicas -}}
{{- if include "headgate.inMemory" . }}1{{ else }}2{{ end -}}
{{- else -}}
{{- int .Values.replicas -}}
{{- end -}}
{{- end -}}

{{- define "headgate.mostReplicas" -}}
{{- if .Values.autoscaling.enabled }}{{ int .Values.autoscaling.maxReplicas }}{{ else }}{{ include "headgate.replicas" . }}{{ end -}}
{{- end -}}

{{- define "headgate.drainDelay" -}}
{{- $default := ternary 2 5 (eq .Values.mode "sidecar") -}}
{{- if kindIs "invalid" .Values.drain.delaySeconds }}{{ $default }}{{ else }}{{ int .Values.drain.delaySeconds }}{{ end -}}
{{- end -}}

{{- define "headgate.drainTimeout" -}}
{{- $default := ternary 5 15 (eq .Values.mode "sidecar") -}}
{{- if kindIs "invalid" .Values.drain.timeoutSeconds }}{{ $default }}{{ else }}{{ int .Values.drain.timeoutSeconds }}{{ end -}}
{{- end -}}

{{/* The drain, the six seconds at most that aborting calls and releasing leases take, and some more. */}}
{{- define "headgate.gracePeriod" -}}
{{- add (include "headgate.drainDelay" . | int) (include "headgate.drainTimeout" . | int) 10 -}}
{{- end -}}

{{/* Nine tenths of a memory limit in bytes, for GOMEMLIMIT; nothing if it is written in an unusual way. */}}
{{- define "headgate.goMemLimit" -}}
{{- $limit := toString (dig "limits" "memory" "" .) -}}
{{- $units := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 -}}
{{- if regexMatch "^[0-9]+(k|M|G|Ki|Mi|Gi)?$" $limit -}}
{{- $number := regexFind "^[0-9]+" $limit | int64 -}}
{{- $unit := get $units (regexFind "[A-Za-z]*$" $limit) | int64 -}}
{{- div (mul $number $unit 9) 10 -}}
{{- end -}}
{{- end -}}
