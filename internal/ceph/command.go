package ceph

// The commands, exactly as the monitors want them. A field of the wrong JSON type, {"ids":"0"} instead of {"ids":["0"]}
// or {"id":"0"} instead of {"id":0}, does not get an error back: it aborts the monitor, then the next one that the
// client turns to, until the quorum is gone. So nothing here is a map or an any, and the tests pin the JSON of each.

// command is one of the types below.
type command interface {
	name() string
}

// plainCommand is a command without arguments.
type plainCommand struct {
	Prefix string `json:"prefix"`
	Format string `json:"format"`
}

func (c plainCommand) name() string { return c.Prefix }

func statusCommand() plainCommand       { return plainCommand{Prefix: "status", Format: "json"} }
func quorumStatusCommand() plainCommand { return plainCommand{Prefix: "quorum_status", Format: "json"} }

func osdMetadataCommand() plainCommand { return plainCommand{Prefix: "osd metadata", Format: "json"} }

func monMetadataCommand() plainCommand { return plainCommand{Prefix: "mon metadata", Format: "json"} }
func osdStatCommand() plainCommand     { return plainCommand{Prefix: "osd stat", Format: "json"} }
func osdDumpCommand() plainCommand     { return plainCommand{Prefix: "osd dump", Format: "json"} }
func crushDumpCommand() plainCommand   { return plainCommand{Prefix: "osd crush dump", Format: "json"} }
func mgrStatCommand() plainCommand     { return plainCommand{Prefix: "mgr stat", Format: "json"} }

// okToStopCommand asks whether OSDs may stop together. Ceph types the ids as a list of OSD names: strings.
type okToStopCommand struct {
	Prefix string   `json:"prefix"`
	IDs    []string `json:"ids"`
	Format string   `json:"format"`
}

func (c okToStopCommand) name() string { return c.Prefix }

// safeToDestroyCommand asks whether OSDs hold no data that is needed.
type safeToDestroyCommand struct {
	Prefix string   `json:"prefix"`
	IDs    []string `json:"ids"`
	Format string   `json:"format"`
}

func (c safeToDestroyCommand) name() string { return c.Prefix }

// lastStatSeqCommand asks for the sequence number of an OSD's last report. Ceph types this id as a number. The format
// must be plain: in JSON, Ceph 16 answers nothing at all.
type lastStatSeqCommand struct {
	Prefix string `json:"prefix"`
	ID     int    `json:"id"`
	Format string `json:"format"`
}

func (c lastStatSeqCommand) name() string { return c.Prefix }

// groupFlagsCommand sets or unsets flags on nodes of the CRUSH map: flags is one string, who is a list.
type groupFlagsCommand struct {
	Prefix string   `json:"prefix"`
	Flags  string   `json:"flags"`
	Who    []string `json:"who"`
}

func (c groupFlagsCommand) name() string { return c.Prefix }

// okToStopMonsCommand asks whether monitors may stop together. Ceph types these ids as a list of strings.
type okToStopMonsCommand struct {
	Prefix string   `json:"prefix"`
	IDs    []string `json:"ids"`
	Format string   `json:"format"`
}

func (c okToStopMonsCommand) name() string { return c.Prefix }

// okToRemoveMonCommand asks whether a monitor may leave the monmap. Ceph types this id as one string.
type okToRemoveMonCommand struct {
	Prefix string `json:"prefix"`
	ID     string `json:"id"`
	Format string `json:"format"`
}

func (c okToRemoveMonCommand) name() string { return c.Prefix }

// removeMonCommand takes a monitor out of the monmap.
type removeMonCommand struct {
	Prefix string `json:"prefix"`
	Name   string `json:"name"`
}

func (c removeMonCommand) name() string { return c.Prefix }

// configKeyCommand writes a key of the monitors' own store.
type configKeyCommand struct {
	Prefix string `json:"prefix"`
	Key    string `json:"key"`
	Value  string `json:"val"`
}

func (c configKeyCommand) name() string { return c.Prefix }
