package sim

import (
	"time"

	"github.com/lockkeeper/lockkeeper/internal/kube"
)

// saidWithin is how soon the policy's status has to say that nobody keeps it up to date.
const saidWithin = 30 * time.Second

// JudgeStatus judges what the policy's status says while nobody has been able to keep it for so long, and a watcher
// lives.
func (w *World) JudgeStatus(unkept time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.policy == nil || unkept <= saidWithin+w.opts.Reaction {
		return
	}
	if says := w.policy.Status; says.MayDrain != "" && !kube.Disowned(says) {
		w.violate("I11: the status says %q, and nobody has kept it for %s", says.MayDrain, unkept.Truncate(time.Second))
	}
}
