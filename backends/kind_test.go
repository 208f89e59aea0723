package backends_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/backends"
	_ "github.com/headgate-rls/headgate/backends/dynamodb"
	_ "github.com/headgate-rls/headgate/backends/memory"
	_ "github.com/headgate-rls/headgate/backends/redis"
	_ "github.com/headgate-rls/headgate/backends/sqlstore"
)

// The schemes that an error sends to a package are those that the package registers.
func TestPackagesOfStores(t *testing.T) {
	var registered []string
	for _, k := range backends.Kinds() {
		slices.Sort(k.Schemes)
		registered = append(registered, strings.Join(k.Schemes, " "))
	}
	var named []string
	for _, schemes := range backends.HomeSchemes() {
		slices.Sort(schemes)
		named = append(named, strings.Join(schemes, " "))
	}
	slices.Sort(registered)
	slices.Sort(named)
	if !slices.Equal(registered, named) || len(named) != 4 {
		t.Errorf("stores register the schemes %q, and errors name packages for %q", registered, named)
	}
}

func TestTwoStoresOfOneScheme(t *testing.T) {
	defer func() {
		if p := recover(); p != "two stores for the scheme redis" {
			t.Errorf("got %v", p)
		}
	}()
	backends.Register(backends.Kind{Schemes: []string{"new", "redis"}})
}
