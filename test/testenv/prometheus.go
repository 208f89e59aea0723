package testenv

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// Prom is a running Prometheus.
type Prom struct {
	URL string

	tb TB
}

// StartPrometheus runs Prometheus with a configuration, which may name further files, in
// the same directory as those.
func StartPrometheus(tb TB, config string) *Prom {
	tb.Helper()
	binary := Require(tb, Prometheus)
	dir := tb.TempDir()
	file := filepath.Join(dir, "prometheus.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", FreePort(tb))
	p := &Prom{URL: "http://" + address, tb: tb}
	server := StartProgram(tb, binary, nil, "--config.file", file, "--storage.tsdb.path", filepath.Join(dir, "data"),
		"--web.listen-address", address)
	err := waitFor(time.Minute, "start Prometheus", func() (bool, string, error) {
		if server.Exited() {
			return false, "", fmt.Errorf("it ended by itself:\n%s", server.Log())
		}
		resp, err := http.Get(p.URL + "/-/ready")
		if err != nil {
			return false, err.Error(), nil
		}
		return resp.StatusCode == http.StatusOK, resp.Status, resp.Body.Close()
	})
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	var version struct{ Data struct{ Version string } }
	if err := p.get("/api/v1/status/buildinfo", &version); err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	ran(tb, Prometheus, version.Data.Version)
	return p
}

// A Sample is one series of an answer.
type Sample struct {
	Metric map[string]string
	Value  string
}

// Query evaluates an expression now.
func (p *Prom) Query(expression string) ([]Sample, error) {
	var answer struct {
		Status, Error string
		Data          struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	if err := p.get("/api/v1/query?query="+url.QueryEscape(expression), &answer); err != nil {
		return nil, err
	}
	if answer.Status != "success" {
		return nil, fmt.Errorf("%s", answer.Error)
	}
	var all []Sample
	for _, r := range answer.Data.Result {
		all = append(all, Sample{r.Metric, fmt.Sprint(r.Value[1])})
	}
	return all, nil
}

// LabelValues returns the values that a label has in the series that a selector selects.
func (p *Prom) LabelValues(label, selector string) ([]string, error) {
	var answer struct {
		Status, Error string
		Data          []string
	}
	if err := p.get("/api/v1/label/"+label+"/values?match[]="+url.QueryEscape(selector), &answer); err != nil {
		return nil, err
	}
	if answer.Status != "success" {
		return nil, fmt.Errorf("%s", answer.Error)
	}
	return answer.Data, nil
}

func (p *Prom) get(path string, into any) error {
	client := http.Client{Timeout: 10 * time.Second}
	resp, err := client.Get(p.URL + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(into)
}
