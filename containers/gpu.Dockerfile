# Extraction on NVIDIA GPUs: docker build -f containers/gpu.Dockerfile -t obygaze-gpu .
# The image brings Python, CUDA and a torch built for it, which the last step must not replace.
FROM pytorch/pytorch:2.9.1-cuda12.8-cudnn9-runtime
WORKDIR /opt/obygaze
COPY . .
RUN python -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
    && pip freeze | grep '^torch==' > /tmp/torch.txt \
    && pip install --no-cache-dir -c /tmp/torch.txt '.[extract,remote]' \
    && useradd --create-home lab
USER lab
WORKDIR /work
ENTRYPOINT ["obygaze"]
CMD ["--help"]
