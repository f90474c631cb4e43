package podspec_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
)

// FuzzClassify: whatever people write into the name, labels and annotations of a pod, it is in one list, only a known
// state is ever written back, and the OSD whose device it claims gets no second pod.
func FuzzClassify(f *testing.F) {
	f.Add("osd-a-sdb-x7k2p", "a", "/dev/sdb", "/dev/nvme0n1p1", "0123456789abcdef", "wait-for-ready", "7", true)
	f.Add("mine", "", "", "", "", "", "osd.7", false)
	f.Add("osd-ÿ-", "ÿ.", "/", "\x00", "f", "up-to-date", "-1", true)
	f.Add("osd-a---", "a", "dev/", "", "f", "invalid", "99999999999999999999", false)
	set, desired := twoOSDs(f)
	f.Fuzz(func(t *testing.T, name, host, data, db, hash, state, id string, serves bool) {
		pod := render(set, desired[0], named(name), with(podspec.HostAnnotation, host), with(podspec.DataAnnotation, data),
			with(podspec.DBAnnotation, db),
			with(podspec.HashAnnotation, hash), with(podspec.StateAnnotation, state))
		pod.Labels[podspec.IDLabel] = id
		if serves {
			isReady(pod)
		}
		c := set.Classify(desired, []*corev1.Pod{pod})
		found := only(t, c)
		for key, value := range found.Annotations(now) {
			if key == podspec.StateAnnotation &&
				!slices.Contains([]podspec.State{podspec.UpToDate, podspec.OutOfDate, podspec.Ready, podspec.Unready},
					podspec.State(value)) {
				t.Fatalf("%q is written as the state", value)
			}
		}
		for _, missing := range c.Missing {
			if missing.Host == host && missing.Data == data || podspec.PodName(missing) == name {
				t.Fatalf("%s gets a pod, though %q claims it", missing.Key(), name)
			}
		}
		if known := podspec.Known(pod).ID; known != nil && *known < 0 {
			t.Fatalf("%q is the number %d", id, *known)
		}
	})
}
