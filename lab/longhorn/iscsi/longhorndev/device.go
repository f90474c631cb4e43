// Package longhorndev is the device of a volume without the device: the engine's socket is all there is. It reports the
// name that the device would have, because Longhorn's manager waits for one.
package longhorndev

import "errors"

// DevPath is the folder of the devices.
const DevPath = "/dev/longhorn/"

// DeviceService is what the engine's frontend does to a device.
type DeviceService interface {
	GetEndpoint() string
	InitDevice() error
	Start() error
	Shutdown() error
	PrepareUpgrade() error
	FinishUpgrade() error
	Expand(size int64) error
}

// LonghornDeviceCreator makes devices.
type LonghornDeviceCreator struct{}

// NewDevice takes the timeouts of iSCSI for the sake of its caller.
func (*LonghornDeviceCreator) NewDevice(name string, size int64, _ string, _, _, _ int64) (DeviceService, error) {
	if name == "" || size == 0 {
		return nil, errors.New("a device needs a name and a size")
	}
	return device(name), nil
}

type device string

func (d device) GetEndpoint() string { return DevPath + string(d) }
func (device) InitDevice() error     { return nil }
func (device) Start() error          { return nil }
func (device) Shutdown() error       { return nil }
func (device) PrepareUpgrade() error { return nil }
func (device) FinishUpgrade() error  { return nil }
func (device) Expand(int64) error    { return nil }
