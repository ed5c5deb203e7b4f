# Extraction, training and reports on a CPU: docker build -f containers/cpu.Dockerfile -t obygaze .
FROM python:3.11-slim
WORKDIR /opt/obygaze
COPY . .
# PyTorch's page "Get started" names an index of builds without CUDA, which are a tenth of the size:
# --build-arg TORCH_INDEX=URL
ARG TORCH_INDEX
RUN pip install --no-cache-dir torch ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} \
    && pip install --no-cache-dir -c constraints.txt '.[extract,models,report,remote]' \
    && useradd --create-home lab
USER lab
WORKDIR /work
ENTRYPOINT ["obygaze"]
CMD ["--help"]
