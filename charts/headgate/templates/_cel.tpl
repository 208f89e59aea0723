{{/* A value as an expression of CEL. Values of a map are dyn: CEL wants all of one type otherwise. */}}
{{- define "headgate.cel" -}}
{{- if kindIs "map" . -}}
{ {{- range $i, $key := keys . | sortAlpha }}{{ if $i }}, {{ end }}{{ toJson $key }}: dyn({{ include "headgate.cel" (get $ $key) }}){{ end -}} }
{{- else if kindIs "slice" . -}}
[ {{- range $i, $element := . }}{{ if $i }}, {{ end }}dyn({{ include "headgate.cel" $element }}){{ end -}} ]
{{- else -}}
{{ toJson . }}
{{- end -}}
{{- end -}}
