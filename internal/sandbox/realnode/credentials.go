package realnode

// Credentials are what the programs of a node authenticate with.
type Credentials struct {
	Authority          string // the file of the authority of the kubelet's clients
	Certificate, Key   string // files of the kubelet
	Kubelet, KubeProxy []byte // kubeconfigs
}
