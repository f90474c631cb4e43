package podspec

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Identify says, by the names of pods, which OSD each is. That is what its annotations say. One that has lost some of
// them is known by its name, or by the number that it has as a label: a daemon does not let go of its device because
// somebody has removed an annotation. Who is not in the answer may be any OSD.
func Identify(desired []OSD, pods []*corev1.Pod) map[string]OSD {
	out, byName, byNumber := make(map[string]OSD, len(pods)), map[string]OSD{}, map[int]OSD{}
	var doubtful []*corev1.Pod
	for _, pod := range pods {
		o := osdOf(pod)
		if o.Host == "" || o.Data == "" {
			doubtful = append(doubtful, pod)
			continue
		}
		out[pod.Name] = o
		if id := Known(pod).ID; id != nil {
			byNumber[*id] = o
		}
	}
	if len(doubtful) == 0 {
		return out
	}
	for _, o := range desired {
		byName[PodName(o)] = o
	}
	for _, pod := range doubtful {
		said := osdOf(pod)
		is, found := byName[pod.Name]
		if id := Known(pod).ID; !found && id != nil {
			is, found = byNumber[*id]
		}
		if !found {
			is, found = onlyOneNamed(pod.Name, said, desired)
		}
		if found && said.mayBe(is) {
			said.Host, said.Data = is.Host, is.Data
			out[pod.Name] = said
		}
	}
	return out
}

// mayBe tells whether what a pod still says of itself is true of an OSD.
func (o OSD) mayBe(other OSD) bool {
	return (o.Host == "" || o.Host == other.Host) && (o.Data == "" || o.Data == other.Data)
}

// onlyOneNamed is the one OSD whose pod the original operator may have given this name.
func onlyOneNamed(name string, said OSD, desired []OSD) (is OSD, found bool) {
	for _, o := range desired {
		if !said.mayBe(o) || !strings.HasPrefix(name, originalPrefix(o)) {
			continue
		}
		if found {
			return OSD{}, false
		}
		is, found = o, true
	}
	return is, found
}

// Holder is a pod that another OSD's pod has to wait for, and why.
type Holder struct {
	Pod *corev1.Pod
	Why string
}

// Holders are, for OSDs by key, the pods of others that have one of their devices, or may have it: a pod of which
// nobody knows which OSD it is may be any of its host. A pod that has ended has none.
func Holders(wanted []OSD, identified map[string]OSD, pods []*corev1.Pod) map[string][]Holder {
	type place struct{ host, device string }
	users, strays := map[place][]*corev1.Pod{}, map[string][]*corev1.Pod{}
	for _, pod := range pods {
		if ended(pod) {
			continue
		}
		o, known := identified[pod.Name]
		for _, device := range o.devices() {
			users[place{o.Host, device}] = append(users[place{o.Host, device}], pod)
		}
		if !known && len(lacking(pod)) < len(mandatory) {
			for _, host := range hostsOf(pod) {
				strays[host] = append(strays[host], pod)
			}
		}
	}
	out := map[string][]Holder{}
	for _, o := range wanted {
		var held []Holder
		for _, device := range o.devices() {
			for _, pod := range users[place{o.Host, device}] {
				if is := identified[pod.Name]; is.Key() != o.Key() {
					held = append(held, Holder{pod, fmt.Sprintf("the pod %s still has %s", pod.Name, device)})
				}
			}
		}
		for _, pod := range strays[o.Host] {
			held = append(held, Holder{pod, stray(pod)})
		}
		if len(held) > 0 {
			slices.SortStableFunc(held, func(a, b Holder) int { return cmp.Compare(a.Pod.Name, b.Pod.Name) })
			out[o.Key()] = held
		}
	}
	return out
}

// stray says what is to be done about a pod that is an OSD's, and nobody knows whose.
func stray(pod *corev1.Pod) string {
	return fmt.Sprintf("which OSD the pod %s is is not known, and it may have any device of its host: annotate it with "+
		"%s, or delete it",
		pod.Name, strings.Join(lacking(pod), " and "))
}

// hostsOf is where a pod runs or is to run, by all that it says.
func hostsOf(pod *corev1.Pod) []string {
	out := []string{pod.Annotations[HostAnnotation], pod.Spec.NodeName, pod.Spec.NodeSelector[corev1.LabelHostname]}
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil &&
		a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			for _, e := range term.MatchExpressions {
				if e.Key == corev1.LabelHostname && e.Operator == corev1.NodeSelectorOpIn {
					out = append(out, e.Values...)
				}
			}
		}
	}
	slices.Sort(out)
	return slices.DeleteFunc(slices.Compact(out), func(host string) bool { return host == "" })
}

// devices are all that the OSD has.
func (o OSD) devices() []string {
	return slices.DeleteFunc([]string{o.Data, o.DB, o.WAL}, func(device string) bool { return device == "" })
}
