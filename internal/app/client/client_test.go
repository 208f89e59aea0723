package client

import "testing"

func TestParseDescriptor(t *testing.T) {
	d, err := ParseDescriptor(`a=1,b=x\,y=z,c=`)
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, e := range d.Entries {
		got += e.Key + "|" + e.Value + ";"
	}
	if got != "a|1;b|x,y=z;c|;" {
		t.Errorf("got %q", got)
	}
	for _, bad := range []string{"", "a", "=b", "a=1,", "a=1,=2"} {
		if _, err := ParseDescriptor(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestLocalAddressIsThatOfTheEnvironment(t *testing.T) {
	for setting, want := range map[string]string{
		"":                   "127.0.0.1:8081",
		":9000":              "127.0.0.1:9000",
		"0.0.0.0:9000":       "127.0.0.1:9000",
		"[::]:9000":          "127.0.0.1:9000",
		"10.0.0.1:9000":      "10.0.0.1:9000",
		"unix:/run/rls.sock": "unix:/run/rls.sock",
		"unix:@rls":          "unix:@rls",
	} {
		t.Setenv("HEADGATE_GRPC", setting)
		if got := LocalAddress("grpc", "127.0.0.1:8081"); got != want {
			t.Errorf("%q: %s, want %s", setting, got, want)
		}
	}
	t.Setenv("HEADGATE_HTTP", "unix:/run/http.sock")
	if got := SlotsURL(); got != "http://127.0.0.1:8080" {
		t.Errorf("slots: %s", got)
	}
}
