package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/lockkeeper/lockkeeper/internal/brief"
)

// when tells a moment the way one asks at night: by the clock on the wall, and how long ago.
func when(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	t, now = t.Local(), now.Local()
	clock := t.Format("15:04:05")
	if t.YearDay() != now.YearDay() || t.Year() != now.Year() {
		clock = t.Format("Jan 2 15:04")
	}
	if t.After(now) {
		return fmt.Sprintf("%s (in %s)", clock, duration.HumanDuration(t.Sub(now)))
	}
	return fmt.Sprintf("%s (%s)", clock, duration.HumanDuration(now.Sub(t)))
}

// table writes rows in columns. A table without rows is not written at all.
func table(w io.Writer, header []string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{header}, rows...) {
		for i, cell := range row {
			if cell == "" {
				row[i] = "-"
			}
		}
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	_ = tw.Flush()
}

// some lists a few and counts the rest.
func some(names []string, most int) string { return brief.List(names, most) }

// pods counts them: "1 pod", "3 pods".
func pods(n int) string {
	if n == 1 {
		return "1 pod"
	}
	return fmt.Sprintf("%d pods", n)
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}
