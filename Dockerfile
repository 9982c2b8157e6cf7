# digestd in an image: the program, certificates to trust, and a folder it may write to.
#
# Plain instructions only, so that every builder can read it. The final stage runs nothing, so the
# runtime image needs no shell; glibc and libgcc are enough.
ARG BUILDER_IMAGE=rust:1.95-slim-bookworm
ARG RUNTIME_IMAGE=debian:bookworm-slim

FROM ${BUILDER_IMAGE} AS build
LABEL stage=digestd-build
WORKDIR /src
# A profile of Cargo.toml. `dev` builds in a third of the time, for tests of the image.
ARG PROFILE=release

# The dependencies first, around an empty program: this layer lasts until Cargo.lock changes.
COPY Cargo.toml Cargo.lock ./
COPY vendor vendor
# Not built, but cargo wants to see the benchmarks that Cargo.toml names.
COPY benches benches
RUN if [ -f vendor/config.toml ]; then mkdir .cargo && cp vendor/config.toml .cargo/config.toml; fi \
 && mkdir src && echo 'fn main() {}' > src/main.rs && touch src/lib.rs \
 && cargo build --locked --profile "$PROFILE" --bin digestd

COPY config config
COPY migrations migrations
COPY templates templates
COPY src src
# Cargo goes by the time of change, and the empty program may be the younger one.
RUN touch src/main.rs src/lib.rs \
 && cargo build --locked --profile "$PROFILE" --bin digestd \
 && mkdir -p /out/state && cp target/*/digestd /out/digestd

FROM ${RUNTIME_IMAGE}
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/digestd /usr/local/bin/digestd
# For SQLite, mails kept as files, and the inbox. A volume mounted here starts with this owner.
COPY --from=build --chown=65532:65532 /out/state /var/lib/digestd
USER 65532:65532
WORKDIR /var/lib/digestd
# Inside a container only the network in front of it can reach this; outside, nothing is published.
ENV DIGESTD__HTTP__LISTEN=0.0.0.0:8080
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 CMD ["digestd", "healthcheck"]
ENTRYPOINT ["digestd"]
CMD ["run"]
