package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"strings"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	istio "istio.io/api/networking/v1alpha3"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	kjson "sigs.k8s.io/json"
)

// custom are the types of custom resources.
var custom = map[string]func() any{
	"monitoring.coreos.com/v1/PodMonitor":     func() any { return new(monitoring.PodMonitor) },
	"monitoring.coreos.com/v1/ServiceMonitor": func() any { return new(monitoring.ServiceMonitor) },
	"monitoring.coreos.com/v1/PrometheusRule": func() any { return new(monitoring.PrometheusRule) },
	"cert-manager.io/v1/Certificate":          func() any { return new(certmanager.Certificate) },
	"gateway.networking.k8s.io/v1/HTTPRoute":  func() any { return new(gateway.HTTPRoute) },
}

// messages are the specs of custom resources that are protobuf messages.
var messages = map[string]func() proto.Message{
	"networking.istio.io/v1/DestinationRule":   func() proto.Message { return new(istio.DestinationRule) },
	"networking.istio.io/v1alpha3/EnvoyFilter": func() proto.Message { return new(istio.EnvoyFilter) },
}

// checkObject returns what is wrong with one object, given as JSON.
func checkObject(data []byte) []error {
	var head struct {
		meta.TypeMeta `json:",inline"`
		Metadata      meta.ObjectMeta `json:"metadata"`
		Spec          json.RawMessage `json:"spec"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return []error{err}
	}
	kind := head.APIVersion + "/" + head.Kind
	named := func(err error) error { return fmt.Errorf("%s %s: %w", head.Kind, head.Metadata.Name, err) }
	if head.Metadata.Name == "" {
		return []error{named(errors.New("has no name"))}
	}
	if message := messages[kind]; message != nil {
		if err := protojson.Unmarshal(head.Spec, message()); err != nil {
			return []error{named(err)}
		}
		return nil
	}
	into, err := typeOf(kind, head.APIVersion, head.Kind)
	if err != nil {
		return []error{named(err)}
	}
	strict, err := kjson.UnmarshalStrict(data, into)
	errs := append([]error{err}, strict...)
	errs = append(errs, checkPod(into)...)
	var all []error
	for _, err := range errs {
		if err != nil {
			all = append(all, named(err))
		}
	}
	return all
}

func typeOf(kind, apiVersion, name string) (any, error) {
	if make := custom[kind]; make != nil {
		return make(), nil
	}
	version, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return nil, err
	}
	return scheme.Scheme.New(version.WithKind(name))
}

// checkPod evaluates the pods that an object makes.
func checkPod(object any) []error {
	var m *meta.ObjectMeta
	var spec *core.PodSpec
	switch o := object.(type) {
	case *core.Pod:
		m, spec = &o.ObjectMeta, &o.Spec
	case *apps.Deployment:
		m, spec = &o.Spec.Template.ObjectMeta, &o.Spec.Template.Spec
	case *batch.Job:
		m, spec = &o.Spec.Template.ObjectMeta, &o.Spec.Template.Spec
	default:
		if workload := reflect.ValueOf(object).Elem().FieldByName("Spec"); workload.IsValid() &&
			workload.Kind() == reflect.Struct && workload.FieldByName("Template").IsValid() {
			return []error{errors.New("makes pods, and this program does not know how to look at them")}
		}
		return nil
	}
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return []error{err}
	}
	var errs []error
	for _, result := range evaluator.EvaluatePod(api.LevelVersion{Level: api.LevelRestricted,
		Version: api.LatestVersion()}, m, spec) {
		if !result.Allowed {
			errs = append(errs, fmt.Errorf("restricted Pod Security: %s: %s", result.ForbiddenReason, result.ForbiddenDetail))
		}
	}
	return errs
}

// versions are those of the types.
func versions() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, m := range info.Deps {
		if m.Path == "k8s.io/api" {
			return strings.TrimPrefix(m.Version, "v")
		}
	}
	return "unknown"
}
