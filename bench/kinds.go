package main

// The texts of a payload. PAYLOAD stands for its name; NAMESPACE, NAME and REVISION for those of an object. Deployments
// have no replicas and Services no address, so that the time of pods and proxies is not measured.

const definition = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.PAYLOAD.example.com}
spec:
  group: PAYLOAD.example.com
  names: {kind: Widget, listKind: WidgetList, plural: widgets, singular: widget}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              colour: {type: string, enum: [red, green, blue]}
              size: {type: integer, minimum: 1}
              parts: {type: array, items: {type: object, properties: {name: {type: string}, count: {type: integer}}}}
`

const namespace = `apiVersion: v1
kind: Namespace
metadata: {name: NAMESPACE}
`

// head is the metadata of each object in a namespace.
const head = `metadata:
  name: NAME
  namespace: NAMESPACE
  labels: {app.kubernetes.io/part-of: bench}
  annotations:
    example.com/description: says in a sentence what it is for, as most manifests of a release do
    example.com/revision: REVISION
`

// kinds are the objects of a namespace, without their metadata.
var kinds = []string{
	`apiVersion: v1
kind: ConfigMap
data:
  config.yaml: |
    listen: 0.0.0.0:8443
    upstream: https://NAME.NAMESPACE.svc:8443
    features: {retries: 3, timeout: 30s, cache: {size: 128Mi, expiry: 10m}}
`,
	`apiVersion: v1
kind: Secret
type: Opaque
data: {user: b3BlcmF0b3I=, password: bm90LWEtc2VjcmV0}
`,
	`apiVersion: v1
kind: ServiceAccount
`,
	`apiVersion: rbac.authorization.k8s.io/v1
kind: Role
rules:
- {apiGroups: [""], resources: [configmaps, secrets, services], verbs: [get, list, watch, update]}
- {apiGroups: [apps], resources: [deployments], resourceNames: [NAME], verbs: [get, patch]}
`,
	`apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: NAME}
subjects:
- {kind: ServiceAccount, name: NAME, namespace: NAMESPACE}
`,
	`apiVersion: v1
kind: Service
spec:
  clusterIP: None
  selector: {app: NAME}
  ports:
  - {name: https, port: 8443, targetPort: https}
  - {name: metrics, port: 9443, targetPort: metrics}
`,
	`apiVersion: PAYLOAD.example.com/v1
kind: Widget
spec:
  colour: red
  size: 3
  parts: [{name: NAME, count: 1}, {name: wheel, count: 4}]
`,
	`apiVersion: apps/v1
kind: Deployment
spec:
  replicas: 0
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec:
      containers:
      - name: operator
        image: registry.example/operator:1.0.0
        args: [start, --config=/etc/config/config.yaml]
        ports: [{name: https, containerPort: 8443}]
        resources: {requests: {cpu: 10m, memory: 50Mi}}
        readinessProbe: {httpGet: {path: /readyz, port: https, scheme: HTTPS}}
`,
}
