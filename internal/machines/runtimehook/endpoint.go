package runtimehook

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path"
	"strconv"
	"strings"

	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
)

// endpoint returns the URL of an extension, without the path of a hook.
func endpoint(config runtimev1.ClientConfig) (*url.URL, error) {
	hasService := config.Service.IsDefined()
	switch {
	case hasService && config.URL != "":
		return nil, errors.New("spec.clientConfig has both url and service: remove one of them")
	case hasService:
		return endpointOfService(config.Service)
	case config.URL == "":
		return nil, errors.New("spec.clientConfig has neither url nor service: set one of them")
	}
	found, err := url.Parse(config.URL)
	switch {
	case err != nil:
		return nil, errors.New("spec.clientConfig.url is no URL: write https://HOST:PORT/PATH")
	case found.Scheme != "https":
		return nil, fmt.Errorf("spec.clientConfig.url begins with %q: extensions are called over https only, since what they answer decides about machines", found.Scheme)
	case found.Hostname() == "":
		return nil, errors.New("spec.clientConfig.url has no host: write https://HOST:PORT/PATH")
	case found.User != nil || found.RawQuery != "" || found.Fragment != "":
		return nil, errors.New("spec.clientConfig.url has a user, a query or a fragment: write https://HOST:PORT/PATH")
	}
	return found, nil
}

func endpointOfService(service runtimev1.ServiceReference) (*url.URL, error) {
	if service.Name == "" || service.Namespace == "" {
		return nil, errors.New("spec.clientConfig.service lacks its name or its namespace")
	}
	host := service.Name + "." + service.Namespace + ".svc"
	if port := service.Port; port != nil {
		if *port < 1 || *port > 65535 {
			return nil, fmt.Errorf("spec.clientConfig.service.port is %d: ports go from 1 to 65535", *port)
		}
		host = net.JoinHostPort(host, strconv.Itoa(int(*port)))
	}
	return &url.URL{Scheme: "https", Host: host, Path: service.Path}, nil
}

// pathOf returns the path of a hook behind a prefix. Discovery has no handler.
func pathOf(prefix, hook, handler string) string {
	return path.Join("/", prefix, hooksv1.GroupVersion.String(), strings.ToLower(hook), strings.ToLower(handler))
}
