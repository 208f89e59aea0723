package sqldb

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// galera is the provider that comes with Debian's MariaDB.
const galera = "/usr/lib/galera/libgalera_smm.so"

// A Galera node that has lost its cluster rejects all statements except those about its status. With
// several hosts, headgate connects to another node. With one, the error is one that may be retried.
func TestNodeOutsideItsGaleraCluster(t *testing.T) {
	if _, err := os.Stat(galera); err != nil {
		t.Skip("no Galera is installed")
	}
	node := testenv.StartDatabase(t, testenv.MariaDB, testenv.WithSettings("--wsrep-on=ON", "--wsrep-provider="+galera,
		"--wsrep-cluster-address=gcomm://", "--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:0",
		"--wsrep-sst-method=skip", "--binlog-format=ROW", "--innodb-autoinc-lock-mode=2"))
	other := testenv.SharedDatabase(t, testenv.MariaDB)
	url := node.URL()
	alone := mustOpen(t, Config{URL: url})
	both := mustOpen(t, Config{URL: strings.Replace(url, node.Addr, node.Addr+","+other.Addr, 1)})
	if at := one(t, both.Read, "SELECT @@port"); at != strconv.Itoa(node.Port) {
		t.Fatalf("the first host is at %s", at)
	}
	node.Exec("SET GLOBAL wsrep_cluster_address = ''")
	testenv.Eventually(t, 20*time.Second, "leave the cluster", func() string {
		var n int
		_, err := alone.Row(soon(t), alone.Read, "read", Query{Text: "SELECT COUNT(*) FROM mysql.user"}, &n)
		if err == nil {
			return "still answers"
		}
		if KindOf(err) != Passing {
			t.Fatalf("kind %v: %v", KindOf(err), err)
		}
		return ""
	})
	testenv.Eventually(t, 20*time.Second, "go to another host", func() string {
		var port int
		_, err := both.Row(soon(t), both.Read, "read", Query{Text: "SELECT @@port FROM mysql.user LIMIT 1"}, &port)
		if err != nil || port != other.Port {
			return fmt.Sprint(port, err)
		}
		return ""
	})
}
