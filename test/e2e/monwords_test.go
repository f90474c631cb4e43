package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// cephMonName is the CephMon of a lab whose mons lockkeeper looks after.
const cephMonName = "mons"

// monSet is what a CephMon's status says of its mons.
type monSet struct {
	Metadata struct{ Generation int64 }
	Status   struct {
		ObservedGeneration              int64
		Quorum, AsSpec, Reason, Message string
		Mons                            []mon
		Step                            *struct{ Kind, Mon, Replaces, Phase, Message string }
	}
}

type mon struct{ Name, Node, Zone, Storage, Address, Different string }

func (w *world) monSet() (s monSet, err error) {
	return s, w.get(&s, ourPath+"cephmons/"+cephMonName)
}

// monWords are what scenarios about mons are told in. Mons change their names, so that a scenario begins with pick-mon.
func (w *world) monWords() map[string]func(*testscript.TestScript, bool, []string) {
	return map[string]func(*testscript.TestScript, bool, []string){
		// pick-mon ZONE: the zone's mon is $MON, such as mon.a, and its node $NODE.
		"pick-mon": func(ts *testscript.TestScript, _ bool, args []string) {
			s, err := w.monSet()
			ts.Check(err)
			for _, m := range s.Status.Mons {
				if m.Zone == args[0] {
					ts.Setenv("MON", "mon."+m.Name)
					ts.Setenv("NODE", m.Node)
					return
				}
			}
			ts.Fatalf("no mon in %s: %+v", args[0], s.Status.Mons)
		},
		// cephmon PATCH: the CephMon's spec is changed: '{"count": 5}'.
		"cephmon": func(ts *testscript.TestScript, _ bool, args []string) {
			ts.Check(w.setCephMon(args[0]))
		},
		// change-storage: the spec asks for claims if mons are on paths, and for paths otherwise: for $STORAGE.
		"change-storage": func(ts *testscript.TestScript, _ bool, _ []string) {
			storage, err := w.changeStorage()
			ts.Check(err)
			ts.Setenv("STORAGE", storage)
		},
		// keep-nodes: mons may run only on the nodes where they are now.
		"keep-nodes": func(ts *testscript.TestScript, _ bool, _ []string) { ts.Check(w.keepNodes()) },
		// taint ZONE, untaint ZONE: no pod is scheduled to its nodes, as when Kubernetes finds that they are full.
		"taint":   func(ts *testscript.TestScript, _ bool, args []string) { ts.Check(w.taint(args[0], ":NoSchedule")) },
		"untaint": func(ts *testscript.TestScript, _ bool, args []string) { ts.Check(w.taint(args[0], "-")) },
		// mon-in ZONE REGEXP: the zone has one mon, and its storage matches.
		"mon-in": func(ts *testscript.TestScript, _ bool, args []string) { ts.Check(w.awaitMonIn(args[0], args[1])) },
		// says REGEXP: so says the CephMon's status, of itself or of the step under way.
		"says": func(ts *testscript.TestScript, _ bool, args []string) {
			ts.Check(w.eventually(patience, args[0], "kubectl", "-n", cephNamespace, "get", "cephmon", cephMonName, "-o",
				"jsonpath={.status.reason}: {.status.message} {.status.step.message}"))
		},
		// mons-are N REGEXP: so many mons are in quorum, nothing is under way, and the storage of each of them matches.
		"mons-are": func(ts *testscript.TestScript, _ bool, args []string) { ts.Check(w.awaitMons(args[0], args[1])) },
		// nothing-under-way: no step is, and none has left anything, whether all mons are as the spec says or not.
		"nothing-under-way": func(ts *testscript.TestScript, _ bool, _ []string) {
			ts.Check(until(patience, func() error {
				s, err := w.monSet()
				if err == nil && s.Status.Step != nil {
					return fmt.Errorf("it is %+v", s.Status.Step)
				}
				return errors.Join(err, w.noMonTraces())
			}))
		},
		// gone DAEMON: the mon has left the monmap, its Deployment and its Service are gone, and nobody is told of it.
		"gone": func(ts *testscript.TestScript, _ bool, args []string) { ts.Check(w.awaitGone(args[0])) },
		// stays DAEMON DURATION: for that long it is in the monmap, with the pod that it has now.
		"stays": func(ts *testscript.TestScript, _ bool, args []string) { ts.Check(w.staysMon(args[0], args[1])) },
		// remember-mons: as they are now, for restarted-mons: each has its name, address and storage, and another pod.
		"remember-mons": func(ts *testscript.TestScript, _ bool, _ []string) {
			mons, err := w.monsAndPods()
			ts.Check(err)
			w.knownMons = mons
		},
		"restarted-mons": func(ts *testscript.TestScript, _ bool, _ []string) {
			ts.Check(until(patience, w.restartedMons))
		},
		// adopt-mons: the CephMon is created anew, and tells of the mons that there are.
		"adopt-mons": func(ts *testscript.TestScript, _ bool, _ []string) {
			ts.Check(w.createCephMon())
			ts.Check(until(patience, func() error {
				s, err := w.monSet()
				if err == nil && s.Status.Quorum != "3/3" {
					return fmt.Errorf("its status says %+v", s.Status)
				}
				return err
			}))
		},
		// same-mons: they are those of remember-mons, each with the pod that it had.
		"same-mons": func(ts *testscript.TestScript, _ bool, _ []string) {
			mons, err := w.monsAndPods()
			ts.Check(err)
			if !maps.Equal(mons, w.knownMons) {
				ts.Fatalf("they are %v, and were %v", mons, w.knownMons)
			}
		},
		// conf-names-mons: the ceph.conf that is mounted into pods names the mons as well, as ceph-with-helm's does.
		"conf-names-mons": func(ts *testscript.TestScript, _ bool, _ []string) { ts.Check(w.nameMonsInConf()) },
		// newcomer-fails: the next mon that is made, $NEWCOMER, such as mon.d, has no pod as soon as it is there.
		"newcomer-fails": func(ts *testscript.TestScript, _ bool, _ []string) {
			newcomer, err := w.newcomerFails()
			ts.Check(err)
			ts.Setenv("NEWCOMER", newcomer)
		},
		// new-client: whoever starts now finds the mons by what everybody is told, and so does an OSD.
		"new-client": func(ts *testscript.TestScript, _ bool, _ []string) { ts.Check(w.newClient()) },
	}
}

func (w *world) awaitMons(count, storage string) error {
	return until(patience, func() error {
		s, err := w.monSet()
		if err != nil {
			return err
		}
		st := s.Status
		if st.ObservedGeneration != s.Metadata.Generation || st.Step != nil || st.Quorum != count+"/"+count ||
			!strings.HasPrefix(st.AsSpec, count+"/") {
			return fmt.Errorf("%s in quorum, %s as the spec says, %s: %s; %+v", st.Quorum, st.AsSpec, st.Reason, st.Message,
				st.Step)
		}
		for _, m := range st.Mons {
			if !strings.HasPrefix(m.Storage, storage) {
				return fmt.Errorf("mon.%s is on %s", m.Name, m.Storage)
			}
		}
		return w.noMonTraces()
	})
}

// newcomerFails waits for the Deployment of a mon that is not in the monmap, and takes its pod away before that has
// made its store.
func (w *world) newcomerFails() (newcomer string, err error) {
	mons, err := w.monmap()
	if err != nil {
		return "", err
	}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		made, err := w.monObjects("/apis/apps/v1" + inNamespace + "deployments")
		if err != nil {
			return "", err
		}
		made = slices.DeleteFunc(made, func(mon string) bool {
			return slices.Contains(mons, mon) || strings.HasSuffix(mon, "-canary")
		})
		if len(made) > 0 {
			return "mon." + made[0], w.scale("mon."+made[0], 0)
		}
	}
	return "", errors.New("no mon was made")
}

func (w *world) changeStorage() (string, error) {
	s, err := w.monSet()
	if err != nil || len(s.Status.Mons) == 0 {
		return "", fmt.Errorf("no mons are known: %+v: %w", s.Status, err)
	}
	storage, template := "HostPath", "null"
	if strings.HasPrefix(s.Status.Mons[0].Storage, storage) {
		storage, template = "PVC", `{"spec": {"storageClassName": "zone-disk"}}`
	}
	return storage, w.setCephMon(`{"volumeClaimTemplate":` + template + `}`)
}

func (w *world) setCephMon(spec string) error {
	return w.run("kubectl", "-n", cephNamespace, "patch", "cephmon", cephMonName, "--type=merge", "-p",
		`{"spec":`+spec+`}`)
}

func (w *world) keepNodes() error {
	s, err := w.monSet()
	if err != nil {
		return err
	}
	var nodes []string
	for _, m := range s.Status.Mons {
		nodes = append(nodes, m.Node)
	}
	names, err := json.Marshal(nodes)
	if err != nil {
		return err
	}
	return w.setCephMon(`{"placement":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":` +
		`{"nodeSelectorTerms":[{"matchExpressions":[{"key":"kubernetes.io/hostname","operator":"In","values":` +
		string(names) + `}]}]}}}}`)
}

func (w *world) taint(zone, what string) error {
	return w.run("kubectl", "taint", "nodes", "-l", "topology.kubernetes.io/zone="+zone, "node.kubernetes.io/full"+what)
}

func (w *world) awaitMonIn(zone, storage string) error {
	re, err := regexp.Compile(storage)
	if err != nil {
		return err
	}
	return until(patience, func() error {
		s, err := w.monSet()
		if err != nil {
			return err
		}
		there := slices.DeleteFunc(s.Status.Mons, func(m mon) bool { return m.Zone != zone })
		if len(there) != 1 || !re.MatchString(there[0].Storage) {
			return fmt.Errorf("it has %+v", there)
		}
		return nil
	})
}

// noMonTraces: every Deployment and Service of a mon or a canary is of a mon in the monmap.
func (w *world) noMonTraces() error {
	mons, err := w.monmap()
	if err != nil {
		return err
	}
	for _, kind := range []string{"/apis/apps/v1" + inNamespace + "deployments", corePath + inNamespace + "services"} {
		made, err := w.monObjects(kind)
		if err != nil {
			return err
		}
		for _, mon := range made {
			if !slices.Contains(mons, mon) {
				return fmt.Errorf("%s/rook-ceph-mon-%s is left, and the monmap has %v", kind, mon, mons)
			}
		}
	}
	return w.toldOf(mons)
}

// monObjects are the mons for which there are objects of a kind, by the objects' names; the canary of mon.d is
// d-canary.
func (w *world) monObjects(kind string) (mons []string, err error) {
	var list struct {
		Items []struct{ Metadata struct{ Name string } }
	}
	err = w.get(&list, kind)
	for _, o := range list.Items {
		if mon, ofMon := strings.CutPrefix(o.Metadata.Name, "rook-ceph-mon-"); ofMon {
			mons = append(mons, mon)
		}
	}
	return mons, err
}

// monmap are the names of the mons in the monmap.
func (w *world) monmap() (names []string, err error) {
	var dump struct{ Mons []struct{ Name string } }
	err = w.ask(&dump, "mon dump")
	for _, m := range dump.Mons {
		names = append(names, m.Name)
	}
	slices.Sort(names)
	return names, err
}

// confMonHost is the line of a ceph.conf that names the mons.
var confMonHost = regexp.MustCompile(`(?m)^mon_host = (.*)$`)

// cephConf is the ceph.conf that is mounted into pods.
func (w *world) cephConf() (string, error) {
	var c struct{ Data struct{ Config string } }
	err := w.get(&c, corePath+inNamespace+"configmaps/rook-config-override")
	return c.Data.Config, err
}

func (w *world) nameMonsInConf() error {
	conf, err := w.cephConf()
	if err != nil {
		return err
	}
	hosts, _, err := w.rookConfig()
	if err != nil {
		return err
	}
	named := strings.Replace(conf, "[global]\n", "[global]\nmon_host = "+hosts+"\n", 1)
	if confMonHost.MatchString(conf) || named == conf {
		return fmt.Errorf("the ceph.conf names mons already, or has no [global]: %q", conf)
	}
	patch, err := json.Marshal(map[string]any{"data": map[string]string{"config": named}})
	if err != nil {
		return err
	}
	return w.run("kubectl", "-n", cephNamespace, "patch", "configmap", "rook-config-override", "--type=merge", "-p",
		string(patch))
}

// rookConfig is what Rook's Secret tells of the mons: mon_host and mon_initial_members.
func (w *world) rookConfig() (hosts, members string, err error) {
	var config struct {
		Data struct {
			Hosts   []byte `json:"mon_host"`
			Members []byte `json:"mon_initial_members"`
		}
	}
	err = w.get(&config, corePath+inNamespace+"secrets/rook-ceph-config")
	return string(config.Data.Hosts), string(config.Data.Members), err
}

// toldOf: whoever starts anew is told of these mons, and of no other: by the endpoints, the Secret with Rook's
// mon_host, the list of the CSI drivers, and the ceph.conf if it names any.
func (w *world) toldOf(mons []string) error {
	var endpoints, csi struct{ Data map[string]string }
	var clusters []struct{ Monitors []string }
	hosts, initial, err := w.rookConfig()
	err = errors.Join(err, w.get(&endpoints, corePath+inNamespace+"configmaps/rook-ceph-mon-endpoints"),
		w.get(&csi, corePath+inNamespace+"configmaps/rook-ceph-csi-config"))
	if err == nil {
		err = json.Unmarshal([]byte(csi.Data["csi-cluster-config-json"]), &clusters)
	}
	if err != nil {
		return err
	}
	var names, addresses []string
	for _, e := range strings.Split(endpoints.Data["data"], ",") {
		name, address, _ := strings.Cut(e, "=")
		names, addresses = append(names, name), append(addresses, address)
		if ip, _, _ := strings.Cut(address, ":"); !strings.Contains(hosts, ip+":") {
			return fmt.Errorf("mon.%s at %s is missing in the Secret's mon_host, %s", name, ip, hosts)
		}
	}
	if slices.Sort(names); !slices.Equal(names, mons) {
		return fmt.Errorf("everybody is told of %v, and the monmap has %v", names, mons)
	}
	members := strings.Split(initial, ",")
	if slices.Sort(members); !slices.Equal(members, mons) {
		return fmt.Errorf("the Secret tells of %v, and the monmap has %v", members, mons)
	}
	slices.Sort(addresses)
	if len(clusters) != 1 || !slices.Equal(slices.Sorted(slices.Values(clusters[0].Monitors)), addresses) {
		return fmt.Errorf("CSI drivers are told of %+v, and all others of %v", clusters, addresses)
	}
	conf, err := w.cephConf()
	if line := confMonHost.FindStringSubmatch(conf); len(line) > 0 && line[1] != hosts {
		return fmt.Errorf("the ceph.conf tells of %s, and the Secret of %s", line[1], hosts)
	}
	return err
}

func (w *world) awaitGone(daemon string) error {
	name := strings.TrimPrefix(daemon, "mon.")
	return until(patience, func() error {
		mons, err := w.monmap()
		if err == nil && slices.Contains(mons, name) {
			return fmt.Errorf("the monmap has %v", mons)
		}
		return errors.Join(err, w.noMonTraces())
	})
}

func (w *world) staysMon(daemon, duration string) error {
	d, err := time.ParseDuration(duration)
	if err != nil {
		return err
	}
	name, before := strings.TrimPrefix(daemon, "mon."), ""
	for deadline := time.Now().Add(d); time.Now().Before(deadline); time.Sleep(time.Second) {
		mons, err := w.monmap()
		if err != nil {
			return err
		}
		pods, err := w.podsOf(daemon)
		if err != nil {
			return err
		}
		if !slices.Contains(mons, name) || len(pods) != 1 || before != "" && pods[0].Metadata.UID != before {
			return fmt.Errorf("the monmap has %v, and its pods are %+v", mons, pods)
		}
		before = pods[0].Metadata.UID
	}
	return nil
}

// monsAndPods are the mons that the status tells of, each with its pod.
func (w *world) monsAndPods() (map[mon]string, error) {
	s, err := w.monSet()
	if err != nil {
		return nil, err
	}
	mons := map[mon]string{}
	for _, m := range s.Status.Mons {
		pods, err := w.podsOf("mon." + m.Name)
		if err != nil || len(pods) != 1 {
			return nil, fmt.Errorf("mon.%s has %d pods: %w", m.Name, len(pods), err)
		}
		m.Node, m.Different = "", "" // one on a volume of its zone may run on another node of it
		mons[m] = pods[0].Metadata.UID
	}
	return mons, nil
}

func (w *world) restartedMons() error {
	now, err := w.monsAndPods()
	if err != nil {
		return err
	}
	for m, pod := range w.knownMons {
		if now[m] == "" || now[m] == pod {
			return fmt.Errorf("mon.%s is not itself in another pod: %v, and before %v", m.Name, now, w.knownMons)
		}
	}
	return nil
}

func (w *world) newClient() error {
	if err := w.run("ceph", "--connect-timeout", "20", "osd", "dump"); err != nil {
		return err
	}
	conf, err := w.cephConf()
	if err != nil {
		return err
	}
	if line := confMonHost.FindStringSubmatch(conf); len(line) > 0 {
		if err := w.run("ceph", "-m", line[1], "--connect-timeout", "20", "osd", "dump"); err != nil {
			return fmt.Errorf("a client that knows the ceph.conf alone: %w", err)
		}
	}
	for _, osd := range []string{"rook-ceph-osd-0", "rook-ceph-mgr-a"} {
		if err := w.run("kubectl", "-n", cephNamespace, "rollout", "restart", "deployment", osd); err != nil {
			return err
		}
	}
	if err := w.run("kubectl", "-n", cephNamespace, "rollout", "status", "deployment", "rook-ceph-osd-0",
		"--timeout=2m"); err != nil {
		return err
	}
	return w.eventually(patience, `"num_up_osds":6`, "ceph", "osd", "stat", "-f", "json")
}

// adoptMons has lockkeeper look after the mons as they are. A dead one is replaced after the least time.
func (w *world) adoptMons() error {
	if err := w.createCephMon(); err != nil {
		return err
	}
	return w.awaitMons("3", "HostPath")
}

func (w *world) createCephMon() error {
	if err := w.run("kubectl", "apply", "-f", w.env["CEPHMON"]); err != nil {
		return err
	}
	const spec = `{"healthTimeout":"1m","zones":[{"name":"zone-x"},{"name":"zone-y"},{"name":"zone-z"}]}`
	return w.setCephMon(spec)
}
