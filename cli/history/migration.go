package history

import (
	"fmt"
	"strings"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	historypb "go.temporal.io/api/history/v1"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/monplan"
	"github.com/lockkeeper/lockkeeper/workflows"
)

func (r *reader) startedMigration(e *historypb.HistoryEvent, a *startedAttributes) {
	in := read[workflows.MigrateMonsInput](a.GetInput())
	if in.State != nil {
		return
	}
	what := "a job looks after the mons of " + in.CephMon
	if in.Migrate {
		what = "somebody asked to migrate the mons of " + in.CephMon
	}
	if in.OneLess {
		what += ", with one less where there is no place for one more"
	}
	r.say(e, what, by(a.GetIdentity()))
}

func (r *reader) endedMigration(e *historypb.HistoryEvent, result *commonpb.Payloads) {
	m := read[workflows.MigrateMonsResult](result)
	r.say(e, "ended: "+m.Outcome, fmt.Sprintf("after %s", m.Took.Round(time.Millisecond)),
		prefixed("steps: ", strings.Join(m.Steps, "; ")), prefixed("why: ", m.Why))
}

// completedMigration tells of the acts of steps, and of what a look has decided.
func (r *reader) completedMigration(e *historypb.HistoryEvent, a activity, result *commonpb.Payloads) {
	switch a.name {
	case "SurveyMons":
		r.decidedOfMons(e, a, read[activities.MonSurvey](result))
	case "AwaitMons":
		r.decidedOfMons(e, a, read[activities.MonSurvey](result))
	case "CarryOutMon":
		in, done := read[activities.MonStepInput](a.input), read[activities.MonStepped](result)
		act := in.Seen.Step.Acts[0]
		what := inThePast(in.Seen.Step, done.Survey.Step)
		if done.Refused != "" {
			r.say(e, "did not do it: "+what, prefixed("because: ", done.Refused), a.tries())
			return
		}
		if !achieved(act, in.Seen.Step, done.Survey.Step) {
			r.say(e, "not done yet: "+act.String(), inQuorum(done.Survey), a.tries())
			return
		}
		under := ""
		if in.Grant != nil {
			under = fmt.Sprintf("under token %d of the lease", in.Grant.Token)
		}
		r.say(e, what, under, inQuorum(done.Survey), a.tries())
	}
}

// inThePast are the acts of a step that were done together: the first one, and those after it that were achieved.
func inThePast(before, after monplan.Step) string {
	var what []string
	for i, act := range before.Together() {
		if i == 0 || achieved(act, before, after) {
			what = append(what, fmt.Sprintf("%s mon.%s", acts[act.Do], act.Mon))
		}
	}
	return strings.Join(what, ", ")
}

// achieved tells whether an act is done: it is not what comes next, and its step was not given up meanwhile.
func achieved(act monplan.Act, before, after monplan.Step) bool {
	if w := after.Work; w != nil && w.Undo != "" && before.Work != nil && before.Work.Undo == "" {
		return false
	}
	return len(after.Acts) == 0 || after.Acts[0] != act
}

// acts are the acts of steps, in the past.
var acts = map[monplan.Do]string{
	monplan.Schedule: "found a node for", monplan.ClaimVolume: "has the volume of",
	monplan.DropCanary: "deleted the canary of", monplan.Start: "started", monplan.AwaitQuorum: "saw in quorum:",
	monplan.SaveEndpoints: "told everybody where the mons are, because of", monplan.RemoveMon: "took out of the monmap:",
	monplan.StopMon: "deleted Deployment and Service of", monplan.RestartMon: "restarted",
	monplan.DropTraces: "deleted what was left of",
}

func inQuorum(s activities.MonSurvey) string {
	if s.Counts.Mons == 0 {
		return ""
	}
	return fmt.Sprintf("in quorum: %d of %d", s.Counts.InQuorum, s.Counts.Mons)
}

func (r *reader) decidedOfMons(e *historypb.HistoryEvent, a activity, s activities.MonSurvey) {
	switch next := s.Step; {
	case !s.Found:
		r.say(e, "the CephMon is gone: its mons stay as they are", a.tries())
	case len(s.Refused) > 0:
		r.say(e, "refuses the spec: "+s.Refused[0].Error(), a.tries())
	case next.Verdict == monplan.Move:
		r.say(e, fmt.Sprintf("decided: %s", next.Work.Kind), prefixed("why: ", next.Why), prefixed("risk: ", next.Risk),
			inQuorum(s), a.tries())
	case next.Why != "":
		r.say(e, fmt.Sprintf("decided: %s: %s", next.Verdict, next.Why), inQuorum(s), a.tries())
	default:
		r.say(e, "nothing is left to do", inQuorum(s), a.tries())
	}
}
