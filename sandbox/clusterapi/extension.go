package main

import (
	"context"
	"errors"
	"flag"
	"net"
	"path/filepath"

	"k8s.io/klog/v2"
	"sigs.k8s.io/cluster-api/api/runtime/catalog"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	"sigs.k8s.io/cluster-api/exp/runtime/server"
	"sigs.k8s.io/cluster-api/test/extension/handlers/inplaceupdate"
)

// runExtension serves the handlers for updates in place of Cluster API's test extension, with the names that they have
// there, until the context ends. Its flags are those of pkg/extensionserver, and its log names the address.
func runExtension(ctx context.Context, arguments []string) error {
	flags := flag.NewFlagSet("extension", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:0", "address, with port 0 for a free one")
	certificate := flags.String("cert-file", "tls.crt", "certificate of the server")
	key := flags.String("key-file", "tls.key", "its key, in the same folder")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	address, err := freeAddress(*listen)
	if err != nil {
		return err
	}
	hooks := catalog.New()
	if err := hooksv1.AddToCatalog(hooks); err != nil {
		return err
	}
	extension, err := server.New(server.Options{
		Catalog: hooks, Host: address.IP.String(), Port: address.Port,
		CertDir: filepath.Dir(*certificate), CertName: filepath.Base(*certificate), KeyName: filepath.Base(*key),
	})
	if err != nil {
		return err
	}
	if err := addHandlers(extension); err != nil {
		return err
	}
	klog.Infof("Cluster API's test extension serves at %s", address)
	return extension.Start(ctx)
}

// freeAddress returns an address to listen at: the server of Cluster API takes no port 0.
func freeAddress(listen string) (*net.TCPAddr, error) {
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, err
	}
	return listener.Addr().(*net.TCPAddr), listener.Close()
}

func addHandlers(extension *server.Server) error {
	handlers := inplaceupdate.NewExtensionHandlers(nil) // they use no client
	return errors.Join(
		extension.AddExtensionHandler(server.ExtensionHandler{
			Hook: hooksv1.CanUpdateMachine, Name: "can-update-machine", HandlerFunc: handlers.DoCanUpdateMachine,
		}),
		extension.AddExtensionHandler(server.ExtensionHandler{
			Hook: hooksv1.CanUpdateMachineSet, Name: "can-update-machineset",
			HandlerFunc: handlers.DoCanUpdateMachineSet,
		}),
		extension.AddExtensionHandler(server.ExtensionHandler{
			Hook: hooksv1.UpdateMachine, Name: "update-machine", HandlerFunc: handlers.DoUpdateMachine,
		}),
	)
}
