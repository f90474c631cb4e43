package failuredomain_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/failuredomain"
)

// poolCase is one case of testdata/pools.txt.
type poolCase struct {
	name       string
	rules      []ceph.CrushRule
	pools      []ceph.Pool
	tolerated  []string
	smallest   string
	fails      string
	intolerant []string
}

func TestPools(t *testing.T) {
	for _, c := range poolCases(t) {
		t.Run(c.name, func(t *testing.T) {
			crush := threeZones()
			crush.Rules = c.rules
			tree := failuredomain.NewTree(crush)
			got, err := tree.Smallest(c.pools)
			if c.fails != "" {
				require.ErrorContains(t, err, c.fails)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.smallest, got.Type)
			require.NotEmpty(t, got.Because)
			require.Equal(t, c.intolerant, tree.Intolerant(c.pools, got.Type, c.tolerated))
		})
	}
}

func poolCases(t *testing.T) []*poolCase {
	text, err := os.ReadFile("testdata/pools.txt")
	require.NoError(t, err)
	var cases []*poolCase
	var c *poolCase
	buckets := map[string]int{}
	for _, b := range threeZones().Buckets {
		buckets[b.Name] = b.ID
	}
	for line := range strings.Lines(string(text)) {
		key, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		args := strings.Fields(rest)
		switch key {
		case "", "#":
		case "case":
			c = &poolCase{name: rest}
			cases = append(cases, c)
		case "rule":
			name, steps, _ := strings.Cut(rest, " ")
			c.rules = append(c.rules, ceph.CrushRule{ID: len(c.rules), Name: name, Steps: parseSteps(t, steps, buckets)})
		case "pool":
			c.pools = append(c.pools, ceph.Pool{
				ID: len(c.pools) + 1, Name: args[0], Size: number(t, args[1]), MinSize: number(t, args[2]),
				Rule: ruleID(c.rules, args[3]),
			})
		case "tolerate":
			c.tolerated = append(c.tolerated, rest)
		case "smallest":
			c.smallest = rest
		case "error":
			c.fails = rest
		case "intolerant":
			c.intolerant = append(c.intolerant, intolerantText(t, c, args[0], number(t, args[1])))
		default:
			t.Fatalf("testdata/pools.txt: %q", line)
		}
	}
	return cases
}

func intolerantText(t *testing.T, c *poolCase, name string, copies int) string {
	for _, p := range c.pools {
		if p.Name == name {
			text := fmt.Sprintf("pool %q (size %d, min_size %d) would become unavailable with any %s", name, p.Size,
				p.MinSize, c.smallest)
			if copies > 1 {
				text += fmt.Sprintf(", which may hold %d copies of the same data", copies)
			}
			return text
		}
	}
	t.Fatalf("no pool %q", name)
	return ""
}

func parseSteps(t *testing.T, text string, buckets map[string]int) []ceph.CrushStep {
	var steps []ceph.CrushStep
	for part := range strings.SplitSeq(text, ";") {
		args := strings.Fields(part)
		step := ceph.CrushStep{Op: args[0]}
		switch {
		case step.Op == "take":
			require.Contains(t, buckets, args[1])
			step.Item = buckets[args[1]]
		case strings.HasPrefix(step.Op, "choose"):
			step.Num, step.Type = number(t, args[1]), args[2]
		}
		steps = append(steps, step)
	}
	return steps
}

func ruleID(rules []ceph.CrushRule, name string) int {
	for _, r := range rules {
		if r.Name == name {
			return r.ID
		}
	}
	return 99
}

func number(t *testing.T, text string) int {
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}
