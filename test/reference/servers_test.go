package reference

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/test/testenv"
)

// A group is tests that run one after the other, beside other groups, with the servers that they expect to find.
type group struct {
	name  string
	tests []string // names of tests, or of some subtests of one
	// servers starts them, on the ports that the tests know, and returns variables for headgate.
	servers func(t *testing.T) []string
}

// groups are all of them. The first one also has the tests that are in none.
var groups = []group{
	{name: "others"},
	{name: "single", tests: []string{"TestBasicConfig/WithPerSecond", "TestBasicConfigMemcache"}},
	{name: "single alone", tests: []string{"TestBasicConfig/WithoutPerSecond"}},
	{name: "xds", tests: []string{"TestXdsProviderBasicConfig", "TestXdsProviderBasicConfigReload"}},
	{name: "tls", tests: []string{"TestBasicTLSConfig", "Test_mTLS"}, servers: tlsServers},
	{name: "cluster", tests: []string{"TestBasicAuthConfigWithRedisCluster"}, servers: clusters},
	{name: "sentinel", tests: []string{"TestBasicAuthConfigWithRedisSentinel"}, servers: sentinels},
}

// password is the one that their tests know.
const password = "password123"

// at has a server answer on one of the ports of their tests.
func at(t *testing.T, port int, addr string) {
	t.Helper()
	testenv.StartProxyOn(t, fmt.Sprint("127.0.0.1:", port), addr)
}

func tlsServers(t *testing.T) []string {
	t.Helper()
	certs := testenv.TestCerts(t)
	for _, port := range []int{16381, 16382} {
		at(t, port, testenv.StartRedis(t, testenv.WithPassword(password), testenv.WithTLS(certs)).Addr)
	}
	at(t, 16361, testenv.StartRedis(t, testenv.WithPassword(password), testenv.WithTLS(certs),
		testenv.WithClientCerts()).Addr)
	// They have one certificate for both sides, which is its own authority.
	dir := t.TempDir()
	var all []string
	for _, name := range []string{certs.Client.CertFile, certs.CAFile} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(text))
	}
	if err := os.WriteFile(filepath.Join(dir, "cert.pem"), []byte(strings.Join(all, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(certs.Client.KeyFile, filepath.Join(dir, "key.pem")); err != nil {
		t.Fatal(err)
	}
	return []string{"SSL_CERT_FILE=" + certs.CAFile, "PROJECT_DIR=" + dir}
}

func clusters(t *testing.T) []string {
	t.Helper()
	for _, first := range []int{6386, 6389} {
		c := testenv.StartRedisCluster(t, testenv.WithPassword(password))
		for i := range 3 {
			at(t, first+i, c.Addrs[i])
		}
	}
	return nil
}

func sentinels(t *testing.T) []string {
	t.Helper()
	for _, first := range []int{26394, 26399} {
		s := testenv.StartRedisSentinel(t, testenv.WithPassword(password))
		for i, addr := range s.SentinelAddrs {
			at(t, first+i, addr)
		}
	}
	return nil
}
