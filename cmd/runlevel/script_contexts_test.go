package main

import (
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// contexts writes a kubeconfig with contexts of the script's current cluster, or adds them to the file. A context may
// have another server, or another user: contexts FILE NAME[=SERVER|@USER]...
func contexts(ts *testscript.TestScript, _ bool, args []string) {
	path := ts.MkAbs(args[0])
	all, err := clientcmd.LoadFromFile(path)
	if err != nil {
		all = clientcmdapi.NewConfig()
	}
	one, err := clientcmd.LoadFromFile(ts.Getenv("KUBECONFIG"))
	ts.Check(err)
	current := one.Contexts[one.CurrentContext]
	for _, arg := range args[1:] {
		name, server, _ := strings.Cut(arg, "=")
		name, user, _ := strings.Cut(name, "@")
		reached, who := one.Clusters[current.Cluster].DeepCopy(), one.AuthInfos[current.AuthInfo].DeepCopy()
		if server != "" {
			reached.Server, reached.CertificateAuthorityData, reached.CertificateAuthority = server, nil, ""
		}
		if user != "" {
			who.Impersonate, who.ImpersonateGroups = user, []string{"system:authenticated"}
		}
		all.Clusters[name], all.AuthInfos[name], all.CurrentContext = reached, who, name
		all.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	ts.Check(clientcmd.WriteToFile(*all, filepath.Clean(path)))
}
