package starter

import (
	"fmt"
	"strings"

	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Alarm says why everything has to close at once, before anybody looks; "" for no reason. before is nil when the
// watcher has just started: then it goes by the marks, which tell of pods that were proved and are no longer there as
// they were; and while a failure domain is open, in which nobody marks pods, by whoever elsewhere does not serve.
//
// Pods of the failure domain that is open come and go; they raise no alarm.
func Alarm(before *Snapshot, now Snapshot) string {
	if now.Invalid != "" || now.Second != "" {
		return "" // nothing of ours guards anything
	}
	var why []string
	if before == nil {
		for name, osd := range now.OSDs {
			switch {
			case osd.Open:
			case osd.FalseMark():
				why = append(why, name+" is not what was proved")
			case now.Opened && osd.Pod != storage.PodReady && !osd.Replacing:
				why = append(why, describeOSD(name, osd))
			}
		}
		return firstOf(append(why, templates(nil, now)...))
	}
	for _, name := range changedOSDs(before.OSDs, now.OSDs) {
		was, is := before.OSDs[name], now.OSDs[name]
		switch {
		case was.Open || is.Open || is.Replacing:
		case was.Pod == storage.PodReady && is.Pod != storage.PodReady:
			why = append(why, describeOSD(name, is))
		case was.Pod == storage.PodReady && is.Life != was.Life:
			why = append(why, name+" has another pod, or its containers were started again")
		case is.FalseMark() && (is.Mark != was.Mark || is.Pod != was.Pod):
			why = append(why, name+" carries a mark that is not its own")
		}
	}
	for _, name := range sortedKeys(before.Budgets, now.Budgets) {
		was, is := before.Budgets[name], now.Budgets[name]
		if !now.Deleting && was.Ours && was.decided() && is.Spec != was.Spec && is.Writer != kube.FieldOwner &&
			is.Writer != kube.WatcherOwner {
			why = append(why, fmt.Sprintf("budget %s was changed or deleted", name))
		}
	}
	return firstOf(append(why, templates(before.MarkedTemplates, now)...))
}

func templates(before []string, now Snapshot) []string {
	if len(now.MarkedTemplates) == 0 || strings.Join(before, " ") == strings.Join(now.MarkedTemplates, " ") {
		return nil
	}
	return []string{fmt.Sprintf("the pod template of %s has a mark: remove the label there",
		strings.Join(now.MarkedTemplates, ", "))}
}
