package starter

import (
	"maps"

	"github.com/lockkeeper/lockkeeper/workflows"
)

// then adds what is to be done next to what could not be done yet. An OSD that went down and came back while Temporal
// was away is still worth the signal; the drain of a node that has returned meanwhile is not worth starting.
func (a Actions) then(next Actions, now Snapshot) Actions {
	out := Actions{Hint: joinHints(a.Hint, next.Hint), Drains: map[string]string{}}
	switch out.Patience = min(a.Patience, next.Patience); {
	case a.IsZero():
		out.Patience = next.Patience
	case next.IsZero():
		out.Patience = a.Patience
	}
	still := drained(now)
	for node, why := range a.Drains {
		if _, ok := still[node]; ok {
			out.Drains[node] = why
		}
	}
	maps.Copy(out.Drains, next.Drains)
	return out
}

func joinHints(a, b workflows.Hint) workflows.Hint {
	switch { // what lockkeeper wrote is found by whoever looks for another reason
	case a.IsEcho() && b.Reason != "" && !b.IsEcho():
		return b
	case b.IsEcho() && a.Reason != "" && !a.IsEcho():
		return a
	}
	out := workflows.Hint{Reason: joinReasons(a.Reason, b.Reason), Daemons: a.Daemons || b.Daemons, Alarm: a.Alarm ||
		b.Alarm, Tampered: a.Tampered || b.Tampered, Disowned: a.Disowned || b.Disowned}
	out.Own = (a.Own || a.Reason == "") && (b.Own || b.Reason == "") && out.Reason != ""
	echo := func(h workflows.Hint) bool { return h.Reason == "" || h.IsEcho() }
	if echo(a) && echo(b) {
		out.Echo, out.ProvedEcho, out.MonEcho = max(a.Echo, b.Echo), max(a.ProvedEcho, b.ProvedEcho),
			max(a.MonEcho, b.MonEcho)
	}
	return out
}

// joinReasons keeps the first ones when there are too many: they tell what began it.
func joinReasons(a, b string) string {
	const most = 500
	switch {
	case a == "":
		return b
	case b == "" || len(a)+len(b) >= most:
		return a
	}
	return a + ", then " + b
}
