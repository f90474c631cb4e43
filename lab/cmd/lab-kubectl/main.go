// Command lab-kubectl is kubectl, of the release of the lab's control plane. It is a program of its own because
// scenarios start it often: one that holds all of Kubernetes takes twice the processor time to start.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
)

func main() { os.Exit(cli.Run(kubectl.NewDefaultKubectlCommand())) }
