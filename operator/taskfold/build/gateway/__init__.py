"""The gateway of a run whose allowlist has names: the sandbox's only DNS server, and its only way out.

Two stock images in one pod behind a Service. CoreDNS answers allowed names with the Service's address and knows no
other name; HAProxy takes the connections to it, reads the name that the client asks for, and connects to where the
cluster's DNS says that name is. Neither forwards a query or a connection that names nothing allowed.
"""
