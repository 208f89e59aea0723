package memory

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// Parse reads memory://?max_keys=N&max_leases=N&max_records=N. Each parameter
// is optional and a positive number; other parameters are errors.
func Parse(rawURL string) (Config, error) {
	var conf Config
	u, err := url.Parse(rawURL)
	if err != nil {
		return conf, errors.New("it cannot be read as a URL; want memory:// with parameters after a ?")
	}
	if strings.Contains(rawURL, "@") {
		return conf, errors.New("memory has no host, and nobody logs in to it: want memory:// with parameters after a ?")
	}
	bounds := map[string]*int{"max_keys": &conf.MaxKeys, "max_leases": &conf.MaxLeases, "max_records": &conf.MaxRecords}
	for name, values := range u.Query() {
		bound := bounds[name]
		n, err := strconv.Atoi(values[0])
		switch {
		case bound == nil:
			return conf, fmt.Errorf("memory has no parameter %q; it has max_keys, max_leases and max_records", name)
		case err != nil || n < 1:
			return conf, fmt.Errorf("%s=%s is not a positive number", name, values[0])
		}
		*bound = n
	}
	return conf, nil
}
