package manifests

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// openShiftNames are the names and short names of OpenShift's resources. A category or a name of another definition
// that equals one hides it: "oc get infrastructure cluster" fails where infrastructure is a category.
const openShiftNames = `
alertmanagers alertmanager apiservers apiserver authentications authentication backups backup baremetalhosts baremetalhost bmh
brokertemplateinstances buildconfigs buildconfig bc builds build catalogsources catalogsource catsrc cloudcredentials
cloudcredential clusterapis clusterapi clusterautoscalers clusterautoscaler ca clustercsidrivers clustercsidriver
clusterimagepolicies clusterimagepolicy clusteroperators clusteroperator co clusterresourcequotas clusterresourcequota
clusterversions clusterversion compatibilityrequirements configs config consoleplugins consoleplugin consoles console
containerruntimeconfigs ctrcfg controllerconfigs controllerconfig controlplanemachinesets controlplanemachineset
credentialsrequests credentialsrequest csisnapshotcontrollers datagathers datagather deploymentconfigs deploymentconfig dc dnses
dns dnsrecords dnsrecord egressips egressip eip etcdbackups etcdbackup etcds etcd featuregates featuregate groups group
helmchartrepositories hosts host identities identity imagecontentpolicies imagecontentsourcepolicies imagedigestmirrorsets idms
imagepolicies imagepolicy images image imagestreams imagestream is imagestreamtags istag imagetagmirrorsets itms
infrastructures infrastructure ingresscontrollers ingresscontroller ingresses ingress insightsdatagathers insightsoperators
installplans installplan ip kubeapiservers kubeapiserver kubecontrollermanagers kubecontrollermanager kubeletconfigs
kubeletconfig kubeschedulers kubescheduler kubestorageversionmigrators machineautoscalers machineautoscaler ma
machineconfignodes machineconfignode machineconfigpools machineconfigpool mcp machineconfigs machineconfig mc
machineconfigurations machineconfiguration machinehealthchecks machinehealthcheck mhc mhcs machineosbuilds machineosconfigs
machines machine machinesets machineset networks network nodes node oauthclients oauthclient oauths oauth olms olm
openshiftapiservers openshiftapiserver openshiftcontrollermanagers openshiftcontrollermanager operatorgroups operatorgroup og
operatorhubs operatorhub operators operator osimagestreams packagemanifests performanceprofiles pinnedimagesets pkis pki
profiles profile projecthelmchartrepositories projects project prometheuses prometheus provisionings provisioning proxies proxy
rangeallocations rolebindingrestrictions routes route samples schedulers scheduler securitycontextconstraints scc servicecas
serviceca storages storage subscriptions subscription sub templateinstances templates template tuneds tuned users user
`

// sameInOpenShift are names of Cluster API's definitions that hide OpenShift's wherever both are served, in OpenShift
// as well.
var sameInOpenShift = []string{"machine", "machines", "machineset", "machinesets", "ma", "machinehealthcheck",
	"machinehealthchecks", "mhc", "mhcs"}

func TestNoNameHidesOneOfOpenShift(t *testing.T) {
	for _, object := range Objects() {
		group, _, _ := unstructured.NestedString(object.Object, "spec", "group")
		if object.GetKind() != "CustomResourceDefinition" || strings.HasSuffix(group, ".openshift.io") {
			continue
		}
		for _, field := range []string{"categories", "shortNames", "singular", "plural"} {
			value, _, _ := unstructured.NestedFieldNoCopy(object.Object, "spec", "names", field)
			names, isList := value.([]any)
			if !isList {
				names = []any{value}
			}
			for _, name := range names {
				text, _ := name.(string)
				isExpected := strings.HasSuffix(group, ".x-k8s.io") && slices.Contains(sameInOpenShift, text)
				if slices.Contains(strings.Fields(openShiftNames), text) && !isExpected {
					t.Errorf("%s has %s %q, which is OpenShift's", object.GetName(), field, text)
				}
			}
		}
	}
}
