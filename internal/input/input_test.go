package input_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

type box struct {
	Name  string `json:"name"`
	Depth *int   `json:"depth,omitempty"`
	Lid   lid    `json:"lid,omitzero"`
	Plain bool
	quiet bool
	Never string `json:"-"`
}

type lid struct {
	Colour string   `json:"colour"`
	Holes  []string `json:"holes"`
}

func TestStrict(t *testing.T) {
	for in, want := range map[string]string{
		`{"name":"a","depth":3,"lid":{"colour":"red","holes":["x"]},"Plain":true}`: "",
		` {} `:                           "",
		`{"nam":1}`:                      `nam: "1": no such field; allowed are name, depth, lid, Plain`,
		`{"quiet":true}`:                 `quiet: "true": no such field; allowed are name, depth, lid, Plain`,
		`{"Never":"x"}`:                  `Never: "\"x\"": no such field; allowed are name, depth, lid, Plain`,
		`{"lid":{"color":"red"}}`:        `lid.color: "\"red\"": no such field; allowed are colour, holes`,
		`{"lid":"red"}`:                  `lid: "\"red\"": must be an object with the fields colour, holes, not string`,
		`{"lid":{"holes":"many"}}`:       `lid.holes: "\"many\"": must be a slice, not string`,
		`{"depth":1.5}`:                  `depth: "1.5": must be a whole number, not number 1.5`,
		`{"depth":99999999999999999999}`: `depth: "99999999999999999999": must be a whole number, not number 99999999999999999999`,
		`{"name":"a","name":"b"}`:        `name: "\"b\"": is named twice`,
		`[]`:                             `input: "[]": must be a JSON object with the fields name, depth, lid, Plain`,
		``:                               `input: "": must be a JSON object with the fields name, depth, lid, Plain`,
		`{"name":`:                       `input: "{\"name\":": unexpected end of JSON input`,
	} {
		var b box
		got := ""
		if err := input.Strict([]byte(in), &b); err != nil {
			got = err.Error()
		}
		assert.Equal(t, want, got, in)
		_ = b.quiet
	}
}

func TestNames(t *testing.T) {
	long := strings.Repeat("a", 300)
	assert.Nil(t, input.NodeName("node", "ip-10-0-0-1.eu-west-1.compute.internal"))
	for _, bad := range []string{"", "a/b", "..", "A", "a b", long, "node-", "é"} {
		assert.NotNil(t, input.NodeName("node", bad), bad)
	}
	key, err := input.PolicyKey("policy", "rook-ceph/a.b")
	assert.Nil(t, err)
	assert.Equal(t, storage.ClusterKey{Namespace: "rook-ceph", Name: "a.b"}, key)
	for _, bad := range []string{"", "a", "/", "a/", "/b", "a/b/c", "a.b/c", "a/" + long, "A/b"} {
		_, err := input.PolicyKey("policy", bad)
		assert.NotNil(t, err, bad)
		assert.LessOrEqual(t, len(err.Error()), 300, "a message is for people")
	}
}

// FuzzStrict: what is accepted means the same to encoding/json, and what is refused is refused in words.
func FuzzStrict(f *testing.F) {
	for _, s := range []string{
		`{"name":"a","depth":3}`, `{"lid":{"holes":[""]}}`, `{"nam":1}`, `{"a.b":1}`, `{"":{"":1}}`,
		`{"lid":{"lid":{}}}`, `{"depth":1e3}`, "null", "{", `{"name":"\ud800"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var b, plain box
		if err := input.Strict(data, &b); err != nil {
			if err.Field == "" && !strings.Contains(string(data), `""`) || err.Allowed == "" {
				t.Fatalf("%q: %v", data, err)
			}
			return
		}
		if err := json.Unmarshal(data, &plain); err != nil {
			t.Fatalf("%q: accepted, but %v", data, err)
		}
		assert.Equal(t, plain, b)
	})
}

// FuzzNames: a name that is accepted is one that can be part of a URL's path and of a workflow's ID.
func FuzzNames(f *testing.F) {
	for _, s := range []string{"node-a", "rook-ceph/rook-ceph", "a/b/c", "../x", "a in (b)", "a=b,c!=d", "é"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if input.NodeName("node", s) == nil &&
			(strings.ContainsAny(s, "/ ?#%\x00\n") || strings.Contains(s, "..") || len(s) > 253) {
			t.Fatalf("%q is no name of a node", s)
		}
		if key, err := input.PolicyKey("policy", s); err == nil && key.String() != s {
			t.Fatalf("%q became %q", s, key)
		}
		for _, err := range []*input.Error{input.PodSelector("selector", s), input.Text("reason", s)} {
			var e *input.Error
			if err != nil && !errors.As(err, &e) {
				t.Fatal(err)
			}
		}
	})
}

func TestImage(t *testing.T) {
	for image, ok := range map[string]bool{
		"": true, "ceph": true, "lab/ceph:18": true, "registry.example.com:5000/ceph/ceph:v20.2.4": true,
		"ceph@sha256:" + strings.Repeat("0a", 32): true,
		"Ceph:18": false, "ceph:": false, "a b": false, "ceph@sha256:12": false, "ceph/": false,
	} {
		err := input.Image("image", image)
		assert.Equal(t, ok, err == nil, "%q: %v", image, err)
		if err != nil {
			assert.Equal(t, image, err.Value)
		}
	}
	for version, ok := range map[string]bool{
		"": true, "18.2.7": true, "ceph version 18.2.7 (1)": true, "18": false,
		"the newest": false,
	} {
		assert.Equal(t, ok, input.VersionOfImage("cephVersion", version, "ceph") == nil, version)
	}
	assert.Nil(t, input.VersionOfImage("cephVersion", "", ""))
	assert.Contains(t, input.VersionOfImage("cephVersion", "18.2.7", "").Allowed, "none is given")
}

func TestPolicyOf(t *testing.T) {
	many := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i"}
	for name, c := range map[string]struct {
		named string
		all   []string
		want  string
		wrong string
	}{
		"the only one":   {"", []string{"ceph"}, "ceph", ""},
		"by its name":    {"b", []string{"a", "b"}, "b", ""},
		"one of several": {"", []string{"a", "b"}, "", `spec.policy: "": must name one of several: a, b`},
		"another one": {
			"c",
			[]string{"a", "b"},
			"",
			`spec.policy: "c": must be a MaintenancePolicy of namespace ns: a, b`,
		},
		"one of many": {"", many, "", `spec.policy: "": must name one of several: a, b, c, d, e, f, g, h and 1 more`},
		"none":        {"", nil, "", `spec.policy: "": there is no MaintenancePolicy in namespace ns: `},
		"none, named": {"a", nil, "", `spec.policy: "a": there is no MaintenancePolicy in namespace ns: `},
	} {
		t.Run(name, func(t *testing.T) {
			got, wrong := input.PolicyOf("spec.policy", "ns", c.named, c.all)
			assert.Equal(t, c.want, got)
			if c.wrong == "" {
				assert.Nil(t, wrong)
				return
			}
			require.NotNil(t, wrong)
			assert.Contains(t, wrong.Error(), c.wrong)
		})
	}
}
