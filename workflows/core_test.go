package workflows_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// core is what is the same for every kind of storage (ADR 30): the keeper, what all jobs have in common, and the
// packages that these rest on.
var core = []string{
	"mind*.go", "keeper*.go", "job.go", "await.go", "call.go", "claim.go", "claimant.go", "several.go", "lease.go",
	"input.go", "options.go", "status.go", "scale_down_node.go",
	"../internal/guard/*.go", "../internal/flags/*.go", "../internal/lease/*.go", "../internal/doubt/*.go",
}

// notYet are files of the core that speak of Ceph, each with what has to become of it.
var notYet = map[string]string{
	"mind_fencing.go":          "one note for people names what is on a node",
	"../internal/lease/mon.go": "what a claim takes is to be a field of it",
}

var (
	// ofOneKind are the words that only one kind of storage has, and what they are called by others.
	ofOneKind = `pg|placement[ -]group|osd|mon|monitor|governor|quorum|noout|zone|rack|volume|replica|` +
		`ceph|crush|rados|rook|longhorn|ok[ -]to[ -]stop`
	asWords = regexp.MustCompile(`(?i)\b(?:` + ofOneKind + `)s?\b`)
	// as parts of names: MonKey, PGsClean, OKToStop, zoneOf
	asParts = regexp.MustCompile(`(?:PG|OSD|Mon|Monitor|Governor|Quorum|Noout|Zone|Rack|Volume|Replica|` +
		`Ceph|Crush|CRUSH|Rados|Rook|Longhorn|OKToStop)s?(?:[A-Z_]|\b)|` +
		`\b(?:pg|osd|mon|noout|zone|volume|replica|ceph|crush)s?[A-Z]`)
	tags = regexp.MustCompile("`[a-z]+:\"[^`]*`") // the names on the wire stay
)

func wordsOfOneKind(line string) []string {
	line = tags.ReplaceAllString(line, "")
	return slices.Concat(asWords.FindAllString(line, -1), asParts.FindAllString(line, -1))
}

// eachOfCore reads the files of the core.
func eachOfCore(t *testing.T, with func(file string, lines []string)) {
	t.Helper()
	read := 0
	for _, pattern := range core {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, files, pattern)
		for _, file := range files {
			if !strings.HasSuffix(file, "_test.go") {
				text, err := os.ReadFile(file)
				require.NoError(t, err)
				with(file, strings.Split(string(text), "\n"))
				read++
			}
		}
	}
	assert.Greater(t, read, 30, "files")
}

// TestCoreNamesNoKindOfStorage: what the core does not know, another kind of storage does not have to be taught.
func TestCoreNamesNoKindOfStorage(t *testing.T) {
	excused := map[string]bool{}
	eachOfCore(t, func(file string, lines []string) {
		for i, line := range lines {
			words := wordsOfOneKind(line)
			switch {
			case len(words) == 0:
			case notYet[file] != "":
				excused[file] = true
			default:
				t.Errorf("%s:%d names %q; what only one kind has is for its guard to know", file, i+1, words)
			}
		}
	})
	for file := range notYet {
		assert.True(t, excused[file], "%s needs no exception any more", file)
	}
}

// shared is what the core may use of package budget, which also has Ceph's decisions: what budgets say, and the way
// from one decision to the next. All else is for a guard to say.
var shared = []string{
	"Book", "CloseAll", "CloseFirst", "CloseForMarks", "Decision", "Ending", "Everything", "GrantedNodes", "Input",
	"Known", "MarkPlan", "ModeClosed", "ModeDefault", "ModeOpen", "ReasonDeleting", "ReasonNotInCharge",
	"ReasonSecondPolicy", "Remembered", "Spec", "Specs", "Step",
}

// TestCoreAsksTheGuard: the core decides nothing of what a kind of storage can bear.
func TestCoreAsksTheGuard(t *testing.T) {
	of := regexp.MustCompile(`\bbudget\.([A-Z]\w*)`)
	eachOfCore(t, func(file string, lines []string) {
		for i, line := range lines {
			for _, m := range of.FindAllStringSubmatch(line, -1) {
				if notYet[file] == "" && !slices.Contains(shared, m[1]) {
					t.Errorf("%s:%d uses budget.%s, which is one kind's", file, i+1, m[1])
				}
			}
		}
	})
}

// TestWordsOfOneKind: the test above sees such words wherever they stand.
func TestWordsOfOneKind(t *testing.T) {
	for _, line := range []string{
		"// the mons are in quorum", "m.state.Memory.Noout", "if c.OfMon() {", "MonKey string", "d.PGsClean",
		"ReasonPGHealthTimeout", `"osd.3 is down"`, "zoneOf(node)", "the governors", "a.OKToStop != nil",
		"Ceph says ok-to-stop", "placement groups", "// its volumes", "cephguard.Guard{}, storage.Ceph",
	} {
		assert.NotEmpty(t, wordsOfOneKind(line), line)
	}
	for _, line := range []string{
		"common ground among months", "Monotonic", "// MayDrain", "harmony",
		"FlagHosts []string `json:\"nooutHosts,omitempty\"`",
	} {
		assert.Empty(t, wordsOfOneKind(line), line)
	}
}
