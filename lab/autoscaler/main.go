// Command autoscaler is the Cluster Autoscaler with a lab as its cloud: its own packages, put together as its own main
// package does, which cannot be had because of what it imports for ProvisioningRequests.
package main

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"k8s.io/autoscaler/cluster-autoscaler/config/flags"
	"k8s.io/autoscaler/cluster-autoscaler/core"
	"k8s.io/autoscaler/cluster-autoscaler/metrics"
	"k8s.io/autoscaler/cluster-autoscaler/version"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/klog/v2"
)

func main() {
	klog.InitFlags(nil)
	cliflag.InitFlags()
	options := flags.AutoscalingOptions()
	klog.Infof("Cluster Autoscaler %s", version.ClusterAutoscalerVersion)
	metrics.RegisterAll(options.EmitPerNodeGroupMetrics)
	autoscaler, err := newAutoscaler(options)
	if err == nil {
		err = autoscaler.Start()
	}
	if err != nil {
		klog.Fatal(err)
	}
	run(autoscaler, options.ScanInterval)
	klog.Flush()
}

// run looks at the cluster once in an interval, until it is told to stop: then it cleans up as its own program does.
// The lab waits for the file LAB_LOOKED, which is made after the first look.
func run(autoscaler core.Autoscaler, interval time.Duration) {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	var looked sync.Once
	for tick := time.NewTicker(interval); ; {
		select {
		case <-stop:
			autoscaler.ExitCleanUp()
			return
		case now := <-tick.C:
			metrics.UpdateLastTime(metrics.Main, now)
			if err := autoscaler.RunOnce(now); err != nil {
				klog.Errorf("loop: %v", err)
			} else {
				looked.Do(sayLooked)
			}
		}
	}
}

func sayLooked() {
	if err := os.WriteFile(os.Getenv("LAB_LOOKED"), nil, 0o600); err != nil {
		klog.Errorf("LAB_LOOKED: %v", err)
	}
}
