// Package longhorn runs the real Longhorn in a lab: its CRDs, webhook, managers, instance managers, engines and
// replicas, all of them pods of the lab's kubelet, with the bytes of each replica on its node's disk.
//
// What is not real is the block device: the volume that an engine serves ends at a unix socket, because a lab has
// neither tgtd nor the kernel's iSCSI.
package longhorn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
	"github.com/lockkeeper/lockkeeper/lab/internal/manifest"
)

// Namespace is where Longhorn lives.
const Namespace = "longhorn-system"

// webhookPort is where the managers serve their admission webhook, on all addresses of the machine.
const webhookPort = 9502

// claimPort is held by the lab that has Longhorn.
const claimPort = firstPort - 1

var (
	group            = schema.GroupVersion{Group: "longhorn.io", Version: "v1beta2"}
	instanceManagers = group.WithResource("instancemanagers")
	engineImages     = group.WithResource("engineimages")
)

// Check says what is missing before Longhorn can be had, and how to get it.
func Check(bin string) error {
	for _, name := range append(programs, crds) {
		path := filepath.Join(folder(bin), name)
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("--longhorn: %s is missing: `make longhorn` builds it, which takes 3 to 6 minutes the first time",
				path)
		} else if err != nil {
			return err
		}
	}
	claim, err := Claim()
	if err != nil {
		return err
	}
	return claim.Close()
}

// Claim is the right to run Longhorn on this machine, which the lab holds as long as it lives: Longhorn's processes
// listen on all addresses, its webhook on a port that cannot be changed.
func Claim() (io.Closer, error) {
	const only = "--longhorn: only one lab of a machine can have Longhorn: port %d is in use (%w)"
	webhook, err := net.Listen("tcp", fmt.Sprintf(":%d", webhookPort))
	if err != nil {
		return nil, fmt.Errorf(only, webhookPort, err)
	}
	webhook.Close()
	// Between the start of a lab and that of its webhook the port is free, so the claim is another one.
	claim, err := net.Listen("tcp", instance.Loopback(claimPort))
	if err != nil {
		return nil, fmt.Errorf(only, claimPort, err)
	}
	return claim, nil
}

// Start installs Longhorn unless it is installed, and returns when an instance manager runs on each of the nodes.
func Start(ctx context.Context, config *rest.Config, bin string, nodes int, progress func(string)) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, instance.StartPatience)
	defer cancel()
	if err := install(ctx, config, client, folder(bin)); err != nil {
		return fmt.Errorf("Longhorn's manifests: %w", err)
	}
	progress("Longhorn is installed; half a minute passes before its first disk is known")
	if err := awaitReady(ctx, client, nodes, progress); err != nil {
		return fmt.Errorf("Longhorn: %w (see `kubectl -n %s get pods,instancemanagers.longhorn.io`)", err, Namespace)
	}
	progress("Longhorn is ready")
	return nil
}

// awaitReady waits until the engine's program is on every node and every node has a running instance manager.
func awaitReady(ctx context.Context, client dynamic.Interface, nodes int, progress func(string)) error {
	said := 0
	return manifest.Poll(ctx, func() (bool, error) {
		managers, err := client.Resource(instanceManagers).Namespace(Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		running := count(managers.Items, "running", "status", "currentState")
		if running > said {
			said = running
			progress(fmt.Sprintf("%d of %d instance managers run", running, nodes))
		}
		images, err := client.Resource(engineImages).Namespace(Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		return running >= nodes && count(images.Items, "deployed", "status", "state") > 0, nil
	})
}

// count is how many objects have a value in a field.
func count(objects []unstructured.Unstructured, value string, field ...string) int {
	n := 0
	for _, o := range objects {
		if found, _, _ := unstructured.NestedString(o.Object, field...); found == value {
			n++
		}
	}
	return n
}
