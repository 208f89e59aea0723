package rulefile

import (
	"strings"
	"testing"
)

func TestOwners(t *testing.T) {
	all, err := ParseOwners([]string{"a/=shop,shop-*", "b/=pay", "c/", "b/=pay-1"})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(all.Paths(), " "); got != "a/ b/ c/" {
		t.Errorf("paths are %s", got)
	}
	for domain, want := range map[string]string{"shop": "a/", "shop-1": "a/", "shop-": "a/", "shopping": "c/", "pay": "b/",
		"pay-1": "b/", "pay-2": "c/", "": "c/"} {
		var may []string
		for _, o := range all {
			if o.MayHave(domain) {
				may = append(may, o.Path)
			}
		}
		if got := strings.Join(may, " "); got != want {
			t.Errorf("%q may be in files of %s, want %s", domain, got, want)
		}
	}
	all, err = ParseOwners([]string{"a=b/c", "d=e/f=g"})
	if err != nil || strings.Join(all.Paths(), " ") != "a=b/c d=e/f" || all[0].MayHave("g") || !all[1].Lists() {
		t.Errorf("paths with an = are %v, %v", all.Paths(), err)
	}
	if o := (*Owner)(nil); !o.MayHave("x") || o.Lists() {
		t.Error("without an owner not all may be had")
	}
}

func TestOwnersThatAreWrong(t *testing.T) {
	for paths, want := range map[string]string{
		"a/=shop b/=shop":     `both have domain "shop"`,
		"a/=shop-* b/=shop-1": `a/ (shop-*) and b/ (shop-1) both have domain "shop-1"`,
		"a/=shop-1 b/=sh*":    `both have domain "shop-1"`,
		"a/=s* b/=x,shop-*":   `both have domain "shop-"`,
		"a/=* b/=x":           `both have domain "x"`,
		"a/=a,a* b/=ab":       `both have domain "ab"`,
		"a/=":                 "a/: the domains of its files: ",
		"a/=x,":               "a domain is empty",
		"a/=x*y":              "a * stands at the end",
		"a/=x a/":             "once with the domains of its files and once without",
		"a/=" + strings.Repeat("x,", 10_000) + "x": "more than 10000 domains",
		"a/=" + strings.Repeat("x", 1025):          "at most 1024",
	} {
		if _, err := ParseOwners(strings.Fields(paths)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %v, want %s", paths, err, want)
		}
	}
}
