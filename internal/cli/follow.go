package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// Runs tells whether a job runs, as far as Temporal can be asked.
func (c *Command) Runs(ctx context.Context, id string) bool { return runs(ctx, c.Temporal, id) }

func runs(ctx context.Context, t Temporal, id string) bool {
	job, err := t.Job(ctx, id)
	return err == nil && job.execution().State == Running
}

// Follow prints what happens to the drain of a node until it ends.
func (c *Command) Follow(ctx context.Context, node string) error {
	return c.stayWithDrain(ctx, node, StayOptions{Follow: true})
}

func (c *Command) stayWithDrain(ctx context.Context, node string, o StayOptions) error {
	var f follower
	return stay(ctx, c, o.Timeout, staying[Drain]{
		id: jobs.DrainNode.ID(node),
		look: func(ctx context.Context) (Drain, error) {
			return lookUp[Drain](ctx, c.Temporal, jobs.DrainNode.ID(node))
		},
		news: func(j Drain) {
			if o.Follow {
				c.print(f.news(c.Now(), j, c.askKeeper(ctx, j)))
			}
		},
		stands: func(Drain) error { return nil }, // whatever it waits for may still come
		ended:  c.ended,
	})
}

// askKeeper returns nil when the keeper does not answer: the job's own words must do then.
func (c *Command) askKeeper(ctx context.Context, job Drain) *workflows.KeeperStatus {
	if job.State != Running || job.Status == nil || job.Status.Target.Cluster.Name == "" {
		return nil
	}
	k, err := c.Temporal.Keeper(ctx, job.Status.Target.Cluster)
	if err != nil {
		return nil
	}
	return &k
}

func (c *Command) print(lines []string) {
	for _, l := range lines {
		fmt.Fprintln(c.Out, l)
	}
}

func (c *Command) ended(job Drain) error {
	if !job.Succeeded() {
		return &ExitError{ExitNotDone, errors.New(job.Describe(c.Now()))}
	}
	r := job.Result
	fmt.Fprintf(c.Out, "%s  %s after %s: %s evicted, %s waited for the lease\n", clock(job.Ended), outcomes[r.Outcome],
		r.Took.Round(time.Second), pods(r.Evicted), r.Waited.Round(time.Second))
	return nil
}

var outcomes = map[string]string{
	workflows.OutcomeDone: "Done: the node is back and its storage is whole,",
	workflows.OutcomeGone: "Gone: the node is deleted and the data is whole without it,",
}

// follower turns looks at a drain into lines, one for each thing that is new.
type follower struct {
	phase, waits, eviction, storage, trouble string
	storageAt                                time.Time
}

// storageEvery bounds how often the count of clean PGs is printed while it changes all the time.
const storageEvery = 2 * time.Second

func (f *follower) news(now time.Time, job Drain, keeper *workflows.KeeperStatus) []string {
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
	if s := describeStorage(keeper); s != "" && s != f.storage && now.Sub(f.storageAt) >= storageEvery {
		say("    %s", s)
		f.storage, f.storageAt = s, now
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
		return fmt.Sprintf("%d of %s still there, held up: %s", s.Eviction.Remaining, pods(s.Eviction.Total), some(s.Eviction.Blocked, 3))
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
	s := fmt.Sprintf("OSDs %d/%d up, ", k.View.Up, k.View.Daemons)
	switch {
	case k.Health.PGs == 0:
		return s + "PGs not known yet"
	case !k.Clean && k.Health.PGsClean == k.Health.PGs:
		return s + fmt.Sprintf("PGs %d/%d clean by the last report, not proven to be fresh", k.Health.PGsClean, k.Health.PGs)
	default:
		return s + fmt.Sprintf("PGs %d/%d clean", k.Health.PGsClean, k.Health.PGs)
	}
}

func clock(t time.Time) string { return t.Local().Format("15:04:05") }
