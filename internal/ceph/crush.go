package ceph

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
)

// CrushMap is the answer to "osd crush dump": the tree of hosts, zones and so on, and the rules that place data on it.
type CrushMap struct {
	Devices []CrushDevice `json:"devices"`
	Types   []CrushType   `json:"types"`
	Buckets []CrushBucket `json:"buckets"`
	Rules   []CrushRule   `json:"rules"`
	// Digest stands for the whole map, with the weights and tunables that are not read here. The version in the OSD map
	// would not do: an OSD that starts raises it by reporting for the place where it already is.
	Digest string `json:"-"`
}

// CrushDevice is a leaf of the tree: an OSD, with its number as id.
type CrushDevice struct {
	ID int `json:"id"`
}

// CrushType is a kind of bucket. Type 0 is that of the devices. The other ids are names and no order: by default
// datacenter is 8 and zone is 9, people add types of their own with any id, and Ceph lets them put any bucket into any
// other. Which type is the smaller one only the tree tells.
type CrushType struct {
	ID   int    `json:"type_id"`
	Name string `json:"name"`
}

// CrushBucket is an inner node of the tree; its id is negative. A name with "~" ("node-a~ssd") is the shadow of the
// bucket before the "~", with the devices of one class alone.
type CrushBucket struct {
	ID     int    `json:"id"`
	Name   string `json:"name"`
	TypeID int    `json:"type_id"`
	Items  []struct {
		ID int `json:"id"`
	} `json:"items"`
}

// CrushRule says how to find places for the copies of a placement group.
type CrushRule struct {
	ID    int         `json:"rule_id"`
	Name  string      `json:"rule_name"`
	Steps []CrushStep `json:"steps"`
}

// CrushStep is one step of a rule: take a bucket, choose Num buckets of a Type below, emit what was chosen.
type CrushStep struct {
	Op   string `json:"op"`   // take, choose_firstn, chooseleaf_indep, choosemsr, emit, set_chooseleaf_tries, …
	Item int    `json:"item"` // of take: a bucket's id
	Num  int    `json:"num"`  // of choose…: 0 means as many as the pool wants, −n that many less n
	Type string `json:"type"` // of choose…: the name of a CrushType
	// Opcode is there instead of Op for steps that Ceph has no word for in its dump: most of set_…, and those of a newer
	// release.
	Opcode int `json:"opcode"`
}

// CrushDump asks the monitors for the CRUSH map. It takes a quorum to answer.
func (c Client) CrushDump(ctx context.Context) (*CrushMap, error) {
	m := &CrushMap{}
	output, err := c.send(ctx, crushDumpCommand())
	if err != nil {
		return nil, err
	}
	if err := decode(crushDumpCommand(), output, m); err != nil {
		return nil, err
	}
	digest := sha256.Sum256(output)
	m.Digest = hex.EncodeToString(digest[:6])
	return m, nil
}
