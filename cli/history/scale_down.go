package history

import (
	"fmt"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	historypb "go.temporal.io/api/history/v1"

	"github.com/lockkeeper/lockkeeper/internal/leaving"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// This file knows what the record of a scale-down means.

func (r *reader) startedScaleDown(e *historypb.HistoryEvent, a *startedAttributes) {
	in := read[workflows.ScaleDownNodeInput](a.GetInput())
	r.say(e, in.Node+" is to leave; this job sees it through that", prefixed("why: ", in.Reason),
		prefixed("policy: ", in.Policy), by(a.GetIdentity()))
}

func (r *reader) endedScaleDown(e *historypb.HistoryEvent, result *commonpb.Payloads) {
	s := read[workflows.ScaleDownNodeResult](result)
	facts := []string{fmt.Sprintf("after %s, of which %s waiting for the lease", s.Took.Round(time.Millisecond),
		s.Waited.Round(time.Millisecond))}
	if s.Turns > 0 {
		facts = append(facts, fmt.Sprintf("the lease went back to others %d times", s.Turns))
	}
	r.say(e, "ended: "+s.Outcome, facts...)
}

// saw tells what a node showed of its leaving at some time.
func (r *reader) saw(e *historypb.HistoryEvent, node string, s leaving.Sight, tries string) {
	way := s.How(e.GetEventTime().AsTime(), 0)
	switch {
	case !s.Found:
		way = leaving.Gone
	case way == leaving.Not:
		way = "not leaving"
	}
	r.say(e, fmt.Sprintf("%s is %s", node, way), prefixed("until: ", s.Until), tries)
}
