# Adjutant and `claude`, served over HTTP. docs/deploy/README.md says how to run it.

FROM rust:1.91-slim-bookworm AS build
WORKDIR /build
COPY . .
RUN cargo build --release --locked --bin adjutant

# `claude` comes as a package of npm, and is one program: the image that runs needs neither npm nor Node.
FROM node:22-bookworm-slim AS claude
WORKDIR /claude
COPY tests/claude-cli/2.1.325/package.json tests/claude-cli/2.1.325/package-lock.json ./
RUN npm ci --ignore-scripts \
    && install -m 755 node_modules/@anthropic-ai/claude-code-linux-*/claude /usr/local/bin/claude

# Servers that want Node or Python need an image made from this one, with them in it.
FROM debian:bookworm-slim
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=claude /usr/local/bin/claude /usr/local/bin/claude
COPY --from=build /build/target/release/adjutant /usr/local/bin/adjutant
RUN useradd --uid 10001 --create-home --home-dir /home/adjutant adjutant \
    && install -d -o adjutant -g adjutant /project
USER 10001:10001
WORKDIR /project
# The project with `agents/`, `.mcp.json` and `data/`; and what `claude` and sign-ins keep.
VOLUME ["/project", "/home/adjutant"]
ENV ADJUTANT_ROOT=/project \
    ADJUTANT_CLAUDE=/usr/local/bin/claude \
    ADJUTANT_KEYRING=off
EXPOSE 8080
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s \
    CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/8080 && printf 'GET /healthz HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n' >&3 && read -r _ status _ <&3 && [ \"$status\" = 200 ]"]
ENTRYPOINT ["adjutant"]
CMD ["serve", "--http", "0.0.0.0:8080"]
