package config

import (
	"reflect"
	"testing"

	"github.com/spf13/pflag"

	"github.com/headgate-rls/headgate/test/documented"
)

// TestSchemaHasEverySetting: the schema knows each setting with its type, and the words
// that it lists are exactly those that the setting accepts.
func TestSchemaHasEverySetting(t *testing.T) {
	properties, err := documented.Schema(Settings(), []string{"config"})
	if err != nil {
		t.Fatal(err)
	}
	if len(properties) != len(Settings().Names())-1 || properties["config"] != nil {
		t.Errorf("%d properties of %d settings", len(properties), len(Settings().Names()))
	}
	for name, want := range map[string]map[string]any{
		"merge-domains": {"type": "boolean"},
		"access-logs":   {"type": "integer"},
		"lease-key":     {"type": []string{"string", "array"}},
		"limit-header":  {"type": "string"},
		"log-format":    {"type": "string", "enum": []string{"text", "json", "logrus"}},
	} {
		for key, value := range want {
			if got := properties[name].(map[string]any)[key]; !reflect.DeepEqual(got, value) {
				t.Errorf("%s: %s is %v, want %v", name, key, got, value)
			}
		}
	}
	if _, err := documented.Schema(Settings(), []string{"no-such"}); err == nil {
		t.Error("a setting that does not exist is left out")
	}
}

func TestWordsOfSettings(t *testing.T) {
	c := new(Config)
	c.program().Define(pflag.NewFlagSet("", pflag.ContinueOnError))
	listed := 0
	for _, s := range c.table() {
		field, ok := s.Field.(*string)
		if !ok {
			continue
		}
		for _, word := range s.Words {
			listed++
			*field = word
			if s.Check() != nil {
				t.Errorf("--%s does not accept %q: %v", s.Name, word, s.Check())
			}
		}
		*field = "no such word"
		if s.Words != nil && s.Check() == nil {
			t.Errorf("--%s accepts more than it lists", s.Name)
		}
	}
	if listed < 20 {
		t.Errorf("only %d words are listed", listed)
	}
}
