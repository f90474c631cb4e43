package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// expenses are the commands that a world has run: looks are repeated until they find what they wait for, and labs share
// few cores with them.
type expenses struct {
	mu  sync.Mutex
	all []*exec.Cmd
}

func (e *expenses) add(c *exec.Cmd) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, c)
}

// String says how often each program ran, and for how long processors were busy with it. Programs that run still are
// left out.
func (e *expenses) String() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	times, busy := map[string]int{}, map[string]time.Duration{}
	var names []string
	for _, c := range e.all {
		if c.ProcessState == nil {
			continue
		}
		name := filepath.Base(c.Path)
		if times[name]++; times[name] == 1 {
			names = append(names, name)
		}
		busy[name] += c.ProcessState.UserTime() + c.ProcessState.SystemTime()
	}
	slices.SortFunc(names, func(a, b string) int { return int(busy[b] - busy[a]) })
	out := []string{}
	for _, name := range names {
		out = append(out, fmt.Sprintf("%s %d times, %s", name, times[name], busy[name].Round(time.Second/10)))
	}
	return "commands have kept processors busy: " + strings.Join(out, "; ")
}
