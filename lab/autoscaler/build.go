package main

import (
	"context"
	"errors"

	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	"k8s.io/autoscaler/cluster-autoscaler/config"
	"k8s.io/autoscaler/cluster-autoscaler/core"
	"k8s.io/autoscaler/cluster-autoscaler/core/podlistprocessor"
	"k8s.io/autoscaler/cluster-autoscaler/core/scaleup/orchestrator"
	"k8s.io/autoscaler/cluster-autoscaler/debuggingsnapshot"
	"k8s.io/autoscaler/cluster-autoscaler/metrics"
	"k8s.io/autoscaler/cluster-autoscaler/processors"
	"k8s.io/autoscaler/cluster-autoscaler/processors/nodegroupset"
	"k8s.io/autoscaler/cluster-autoscaler/processors/nodeinfosprovider"
	"k8s.io/autoscaler/cluster-autoscaler/processors/scaledowncandidates"
	"k8s.io/autoscaler/cluster-autoscaler/processors/scaledowncandidates/emptycandidates"
	"k8s.io/autoscaler/cluster-autoscaler/processors/scaledowncandidates/previouscandidates"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/clustersnapshot/predicate"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/clustersnapshot/store"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/drainability/rules"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/options"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/scheduling"
	kubeutil "k8s.io/autoscaler/cluster-autoscaler/utils/kubernetes"
	"k8s.io/client-go/informers"
)

// newAutoscaler puts the parts together, with the lab's cloud and without ProvisioningRequests.
func newAutoscaler(o config.AutoscalingOptions) (core.Autoscaler, error) {
	client := kubeutil.CreateKubeClient(o.KubeClientOpts)
	factory := informers.NewSharedInformerFactory(client, 0)
	handle, err := framework.NewHandle(factory, o.SchedulerConfig, o.DynamicResourceAllocationEnabled)
	if err != nil {
		return nil, err
	}
	cloud, err := newCloud(client, o.NodeGroups, cloudprovider.NewResourceLimiter(nil, nil))
	if err != nil {
		return nil, err
	}
	parts := core.AutoscalerOptions{
		AutoscalingOptions: o, FrameworkHandle: handle, KubeClient: client, InformerFactory: factory, CloudProvider: cloud,
		ClusterSnapshot: predicate.NewPredicateSnapshot(store.NewDeltaSnapshotStore(o.ClusterSnapshotParallelism), handle,
			o.DynamicResourceAllocationEnabled),
		DebuggingSnapshotter: debuggingsnapshot.NewDebuggingSnapshotter(false),
		DeleteOptions:        options.NewNodeDeleteOptions(o),
		ScaleUpOrchestrator:  orchestrator.New(),
	}
	parts.DrainabilityRules = rules.Default(parts.DeleteOptions)
	addProcessors(&parts)
	metrics.InitMetrics()
	autoscaler, err := core.NewAutoscaler(parts, factory)
	if err != nil {
		return nil, err
	}
	return autoscaler, synced(factory)
}

// addProcessors has the processors that the program has by default.
func addProcessors(parts *core.AutoscalerOptions) {
	o := parts.AutoscalingOptions
	p := processors.DefaultProcessors(o)
	p.TemplateNodeInfoProvider = nodeinfosprovider.NewDefaultTemplateNodeInfoProvider(&o.NodeInfoCacheExpireTime,
		o.ForceDaemonSets)
	p.PodListProcessor = podlistprocessor.NewDefaultPodListProcessor(scheduling.ScheduleAnywhere)
	before := previouscandidates.NewPreviousCandidates()
	p.ScaleDownCandidatesNotifier.Register(before)
	candidates := scaledowncandidates.NewCombinedScaleDownCandidatesProcessor()
	candidates.Register(scaledowncandidates.NewScaleDownCandidatesSortingProcessor(
		[]scaledowncandidates.CandidatesComparer{
			emptycandidates.NewEmptySortingProcessor(emptycandidates.NewNodeInfoGetter(parts.ClusterSnapshot),
				parts.DeleteOptions, parts.DrainabilityRules), before,
		}))
	p.ScaleDownNodeProcessor = candidates
	p.NodeGroupSetProcessor = &nodegroupset.BalancingNodeGroupSetProcessor{
		Comparator: nodegroupset.CreateGenericNodeInfoComparator(o.BalancingExtraIgnoredLabels, o.NodeGroupSetRatios),
	}
	parts.Processors = p
}

// synced starts the informers, after the autoscaler has asked for its own.
func synced(factory informers.SharedInformerFactory) error {
	forever := context.Background().Done()
	factory.Start(forever)
	for _, ok := range factory.WaitForCacheSync(forever) {
		if !ok {
			return errors.New("informers are not in sync")
		}
	}
	return nil
}
