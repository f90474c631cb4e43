package controlplane

import (
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// kubeconfig is complete in itself, so that it may be copied elsewhere.
func kubeconfig(url string, ca []byte, user pair) ([]byte, error) {
	return clientcmd.Write(api.Config{
		Clusters:       map[string]*api.Cluster{"lab": {Server: url, CertificateAuthorityData: ca}},
		AuthInfos:      map[string]*api.AuthInfo{"lab": {ClientCertificateData: user.cert, ClientKeyData: user.key}},
		Contexts:       map[string]*api.Context{"lab": {Cluster: "lab", AuthInfo: "lab"}},
		CurrentContext: "lab",
	})
}
