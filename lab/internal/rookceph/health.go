package rookceph

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
)

// WaitHealthy waits for all monitors in quorum, all OSDs up, all placement groups active+clean and HEALTH_OK, and
// reports every step of the way. After instance.StartPatience it gives up; the error says what was still missing. Where
// nobody runs the OSDs yet it does not wait for more than a manager.
//
// The daemons themselves are asked as long as possible. What the monitors say of a cluster that has just been restarted
// is what they remember of its last life, and that was clean.
func WaitHealthy(
	ctx context.Context, inst instance.Instance, topo instance.Topology, mons []string, progress func(string),
) error {
	ctx, cancel := context.WithTimeoutCause(ctx, instance.StartPatience,
		fmt.Errorf("not healthy within %s (see kubectl -n %s get pods,events)", instance.StartPatience, Namespace))
	defer cancel()
	c := cluster{inst: inst, topo: topo}
	forget, err := c.usePrograms(ctx, progress)
	if err != nil {
		return err
	}
	defer forget()
	say := onlyNews(progress)
	if err := c.awaitMons(ctx, mons, say); err != nil {
		return err
	}
	if topo.OSDPods == instance.OSDPodsNone {
		return c.awaitManager(ctx, say)
	}
	if err := c.awaitOSDs(ctx, say); err != nil {
		return err
	}
	return c.awaitClean(ctx, say)
}

// awaitMons waits until all monitors are in quorum. Those that came later have their sockets where the machine does not
// find them; without a quorum nobody answers for them, so what they say is not what they remember.
func (c cluster) awaitMons(ctx context.Context, mons []string, say func(string)) error {
	first := true
	for i, m := range c.mons() {
		first = first && i < len(mons) && m.id == mons[i]
	}
	if first && len(mons) == c.topo.Mons {
		return c.awaitQuorum(ctx, c.topo.Mons, func(have int) {
			say(fmt.Sprintf("Ceph: %d of %d mons in quorum", have, c.topo.Mons))
		})
	}
	for {
		var status struct {
			Quorum []int `json:"quorum"`
		}
		err := c.ceph(ctx, &status, "quorum_status")
		if say(fmt.Sprintf("Ceph: %d of %d mons in quorum", len(status.Quorum), len(mons))); len(status.Quorum) >= len(mons) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d mons in quorum: %w", len(status.Quorum), len(mons), errors.Join(err, context.Cause(ctx)))
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// onlyNews passes on what differs from what was said before.
func onlyNews(progress func(string)) func(string) {
	last := ""
	return func(s string) {
		if s != last {
			last = s
			progress(s)
		}
	}
}

func (c cluster) awaitOSDs(ctx context.Context, say func(string)) error {
	osds := c.topo.OSDs()
	for {
		up := 0
		for _, osd := range osds {
			if c.osdActive(ctx, osd.ID) {
				up++
			}
		}
		say(fmt.Sprintf("Ceph: %d of %d OSDs up", up, len(osds)))
		if up == len(osds) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d OSDs up: %w", up, len(osds), context.Cause(ctx))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// awaitManager waits until the manager itself says that it is the active one.
func (c cluster) awaitManager(ctx context.Context, say func(string)) error {
	for !c.managerActive(ctx) {
		say("Ceph: waiting for the manager")
		select {
		case <-ctx.Done():
			return fmt.Errorf("no active manager: %w", context.Cause(ctx))
		case <-time.After(50 * time.Millisecond):
		}
	}
	say("Ceph: mons and manager are up; the OSDs are yours to run: kubectl apply -f \"$CEPHOSD\"")
	return nil
}

// awaitClean asks the manager for the placement groups, which only a manager that is alive and has heard all OSDs
// answers with pgReady, and then the monitors for the rest.
func (c cluster) awaitClean(ctx context.Context, say func(string)) error {
	for {
		missing, err := c.missing(ctx)
		if err != nil {
			missing = err.Error()
		}
		if missing == "" {
			say("Ceph: " + c.healthy() + ", all placement groups active+clean")
			return nil
		}
		if ctx.Err() == nil {
			say("Ceph: " + missing)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("Ceph: %s: %w", missing, context.Cause(ctx))
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// healthy is the health that is waited for.
func (c cluster) healthy() string {
	if c.topo.Release() >= instance.FirstWithAES256K && c.topo.Keys() != instance.CephKeysAES256K {
		return "nothing is wrong but for keys of the old type"
	}
	return "HEALTH_OK"
}

// missing says what keeps the cluster from being healthy, or nothing.
func (c cluster) missing(ctx context.Context) (string, error) {
	var pgs pgStat
	if err := c.ceph(ctx, &pgs, "pg", "stat"); err != nil {
		return "", err
	}
	if why := pgs.missing(c.placementGroups()); why != "" {
		return why, nil
	}
	var health health
	if err := c.ceph(ctx, &health, "health"); err != nil {
		return "", err
	}
	return health.missing(c.topo.Keys() != instance.CephKeysAES256K), nil
}

// pgStat is the answer to `ceph pg stat`.
type pgStat struct {
	Ready   bool `json:"pg_ready"`
	Summary struct {
		Total   int `json:"num_pgs"`
		ByState []struct {
			Name  string `json:"name"`
			Count int    `json:"num"`
		} `json:"num_pg_by_state"`
	} `json:"pg_summary"`
}

func (s pgStat) missing(want int) string {
	if !s.Ready {
		return "the manager has not heard of all OSDs yet"
	}
	if s.Summary.Total < want {
		return fmt.Sprintf("%d of %d placement groups", s.Summary.Total, want)
	}
	var states []string
	clean := 0
	for _, state := range s.Summary.ByState {
		if state.Name == "active+clean" {
			clean = state.Count
		}
		states = append(states, fmt.Sprintf("%d %s", state.Count, state.Name))
	}
	if clean == s.Summary.Total {
		return ""
	}
	slices.Sort(states)
	return "placement groups: " + strings.Join(states, ", ")
}

// health is the answer to `ceph health`.
type health struct {
	Status string `json:"status"`
	Checks map[string]struct {
		Summary struct {
			Message string `json:"message"`
		} `json:"summary"`
	} `json:"checks"`
}

// missing is what is wrong. Ceph calls keys of the old type an error, from the release on that has new ones; whoever
// asks for old ones has them.
func (h health) missing(oldKeys bool) string {
	if h.Status == "HEALTH_OK" {
		return ""
	}
	var checks []string
	for _, code := range slices.Sorted(maps.Keys(h.Checks)) {
		if oldKeys && strings.HasPrefix(code, "AUTH_") {
			continue
		}
		checks = append(checks, code+": "+h.Checks[code].Summary.Message)
	}
	if len(checks) == 0 {
		return ""
	}
	return h.Status + " " + strings.Join(checks, "; ")
}

// ceph runs a command as the administrator and decodes its answer.
func (c cluster) ceph(ctx context.Context, answer any, args ...string) error {
	cmd := c.command(ctx, "ceph", append(args, "--format", "json", "--connect-timeout", "10")...)
	cmd.Env = cephEnv(AdminConfig(c.inst))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := c.finish(cmd); err != nil {
		return fmt.Errorf("ceph %s: %w: %s", strings.Join(args, " "), err, tail(stderr.Bytes(), 500))
	}
	return json.Unmarshal(stdout.Bytes(), answer)
}
