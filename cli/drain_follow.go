package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// storageNow tells of the storage of all clusters on the node, as their keepers see it. A keeper that does not answer
// says nothing: the job's own words must do then.
func (c *Command) storageNow(ctx context.Context, job Drain) string {
	if job.State != Running || job.Status == nil || job.Status.Target.Cluster.Name == "" {
		return ""
	}
	var all []string
	on := job.Status.Target.Storage()
	for _, s := range on {
		k, err := c.Temporal.Keeper(ctx, s.Cluster)
		switch {
		case err != nil:
		case len(on) > 1:
			all = append(all, s.Cluster.String()+": "+describeStorage(&k))
		default:
			all = append(all, describeStorage(&k))
		}
	}
	return strings.Join(all, "; ")
}

var outcomes = map[string]string{
	workflows.OutcomeDone: "Done: the node is back and its storage is whole,",
	workflows.OutcomeGone: "Gone: the node is deleted and the data is whole without it,",
}

// drainFollower turns looks at a drain into lines.
type drainFollower struct {
	phase, waits, eviction, storage, trouble string
	storageAt                                time.Time
}

// storageEvery bounds how often the count of clean PGs is printed while it changes all the time.
const storageEvery = 2 * time.Second

func (f *drainFollower) news(ctx context.Context, c *Command, j Job) []string {
	job, _ := j.(Drain)
	now, storage := c.Now(), c.storageNow(ctx, job)
	var out []string
	say := func(format string, args ...any) {
		out = append(out, clock(now)+"  "+fmt.Sprintf(format, args...))
	}
	if job.State != Running {
		return nil
	}
	if job.Status == nil {
		if job.Silent != f.trouble {
			say("%s", job.Silent)
		}
		f.trouble = job.Silent
		return out
	}
	f.trouble = ""
	phase, waits := job.Phase(), job.Status.WaitsFor
	switch {
	case phase != f.phase && waits != "":
		say("%s: waits for %s", phase, waits)
	case phase != f.phase:
		say("%s", phase)
	case waits != f.waits && waits != "":
		say("    waits for %s", waits)
	}
	f.phase, f.waits = phase, waits
	if s := describeStep(job.Step); s != f.eviction {
		if s != "" {
			say("    %s", s)
		}
		f.eviction = s
	}
	if storage != "" && storage != f.storage && now.Sub(f.storageAt) >= storageEvery {
		say("    %s", storage)
		f.storage, f.storageAt = storage, now
	}
	return out
}

func describeStep(s *Step) string {
	switch {
	case s == nil:
		return ""
	case s.LastFailure != "":
		return fmt.Sprintf("trying again, attempt %d of %s: %s", s.Attempt, s.Name, s.LastFailure)
	case len(s.Eviction.Blocked) > 0:
		return fmt.Sprintf("%d of %s still there, held up: %s", s.Eviction.Remaining, pods(s.Eviction.Total),
			some(s.Eviction.Blocked, 3))
	default:
		return fmt.Sprintf("%d of %s still there", s.Eviction.Remaining, pods(s.Eviction.Total))
	}
}

func describeStorage(k *workflows.KeeperStatus) string {
	switch {
	case k == nil:
		return ""
	case k.View.Unavailable != "":
		return "the storage cluster: " + k.View.Unavailable
	}
	if k.Kind == storage.Longhorn {
		return fmt.Sprintf("%d of %d instance managers run", k.View.Up, k.View.Daemons)
	}
	s := fmt.Sprintf("OSDs %d/%d up, ", k.View.Up, k.View.Daemons)
	switch {
	case k.Health.PGs == 0:
		return s + "PGs not known yet"
	case k.View.Disconnected != nil:
		return s + fmt.Sprintf("%d of them without a session with any monitor, PGs %d/%d clean", k.View.Disconnected.Daemons,
			k.Health.PGsClean, k.Health.PGs)
	case !k.Clean && k.Health.PGsClean == k.Health.PGs:
		return s + fmt.Sprintf("PGs %d/%d clean by the last report, not proven to be fresh", k.Health.PGsClean, k.Health.PGs)
	default:
		return s + fmt.Sprintf("PGs %d/%d clean", k.Health.PGsClean, k.Health.PGs)
	}
}

func clock(t time.Time) string { return t.Local().Format("15:04:05") }
