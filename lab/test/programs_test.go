package test

import (
	"os/exec"
	"strings"
	"testing"
)

// The links are what envtest expects in KUBEBUILDER_ASSETS.
func TestProgramsAnswerToTheirNames(t *testing.T) {
	t.Parallel()
	bin := load(t, labName).Path("bin")
	for name, want := range map[string]string{
		"etcd": "etcd Version: 3.", "kube-apiserver": "Kubernetes v1.",
		"kubectl": "Client Version: v1.",
	} {
		args := []string{"--version"}
		if name == "kubectl" {
			args = []string{"version", "--client"}
		}
		out, err := exec.Command(bin+"/"+name, args...).CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), want) {
			t.Errorf("%s: %v, %s", name, err, out)
		}
	}
}
