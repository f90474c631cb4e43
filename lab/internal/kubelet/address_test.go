package kubelet

import "testing"

func TestAddresses(t *testing.T) {
	a := newAddresses(3)
	if got := a.take(); got != "127.67.0.1" {
		t.Errorf("first: %s", got)
	}
	second := a.take()
	a.release(second)
	if got := a.take(); got == second {
		t.Errorf("%s was used again at once", got)
	}
	a.release(hostIP)       // of a pod on the host network: not ours
	a.release("127.68.0.1") // of another lab
	seen := map[string]bool{"127.67.0.1": true}
	for range 65532 {
		ip := a.take()
		if seen[ip] {
			t.Fatalf("%s was given twice", ip)
		}
		seen[ip] = true
	}
}
